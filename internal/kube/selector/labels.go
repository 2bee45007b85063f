package selector

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// labelParser reads the grammar of label selectors: key, !key, key=v, key==v,
// key!=v, key in (a,b), key notin (a,b), key>1, key<1, joined by commas.
type labelParser struct {
	text string
	at   int
}

func parseLabels(text string) (out []requirement, err error) {
	p := &labelParser{text: text}
	if p.peek() == "" {
		return nil, nil
	}
	for {
		r, err := p.requirement()
		if err != nil {
			return nil, err
		}
		out = append(out, r)
		switch token := p.next(); token {
		case "":
			return out, nil
		case ",":
			if p.peek() == "" {
				return nil, p.invalid()
			}
		default:
			return nil, p.invalid()
		}
	}
}

func (p *labelParser) invalid() error {
	return fmt.Errorf("%w: label selector %.100q", ErrInvalid, p.text)
}

// symbols are the characters that make operators.
const symbols = "=!(),<>"

// next returns the next token, or "" at the end.
func (p *labelParser) next() string {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
	from := p.at
	if from == len(p.text) {
		return ""
	}
	if strings.IndexByte(symbols, p.text[from]) >= 0 {
		p.at++
		if two := p.text[from:min(from+2, len(p.text))]; two == "==" || two == "!=" {
			p.at++
		}
		return p.text[from:p.at]
	}
	for p.at < len(p.text) && strings.IndexByte(symbols+" \t\r\n", p.text[p.at]) < 0 {
		p.at++
	}
	return p.text[from:p.at]
}

func (p *labelParser) peek() string {
	at := p.at
	token := p.next()
	p.at = at
	return token
}

// word returns the next token if it is not an operator.
func (p *labelParser) word() (string, bool) {
	token := p.peek()
	if token == "" || strings.Contains(symbols, token[:1]) {
		return "", false
	}
	return p.next(), true
}

func (p *labelParser) requirement() (r requirement, err error) {
	absent := p.peek() == "!"
	if absent {
		p.next()
	}
	key, ok := p.word()
	if !ok || !isKey(key) {
		return r, p.invalid()
	}
	r.key = key
	if absent {
		r.op = missing
		return r, nil
	}
	switch p.peek() {
	case "", ",":
		r.op = exists
		return r, nil
	}
	switch p.next() {
	case "=", "==":
		r.op, r.values = in, p.value()
	case "!=":
		r.op, r.values = notIn, p.value()
	case "in":
		r.op = in
		r.values, err = p.set()
	case "notin":
		r.op = notIn
		r.values, err = p.set()
	case ">":
		r.op = greater
		r.bound, err = p.number()
	case "<":
		r.op = less
		r.bound, err = p.number()
	default:
		return r, p.invalid()
	}
	if err == nil && slices.ContainsFunc(r.values, func(v string) bool { return v != "" && !isName(v) }) {
		err = p.invalid()
	}
	return r, err
}

// isKey reports whether a label may have a key: a name, optionally prefixed by a DNS name and a slash.
func isKey(key string) bool {
	domain, name, two := strings.Cut(key, "/")
	if !two {
		return isName(key)
	}
	if len(domain) > 253 || strings.ContainsFunc(domain, func(r rune) bool { return r == '_' || r >= 'A' && r <= 'Z' }) {
		return false
	}
	for part := range strings.SplitSeq(domain, ".") {
		if !isName(part) {
			return false
		}
	}
	return isName(name)
}

// isName reports whether a text is valid as the name or the non-empty value of a label.
func isName(text string) bool {
	isLetter := func(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' }
	for i := range len(text) {
		if !isLetter(text[i]) && (i == 0 || i == len(text)-1 || strings.IndexByte("-_.", text[i]) < 0) {
			return false
		}
	}
	return text != "" && len(text) <= 63
}

// value returns one value, which may be empty.
func (p *labelParser) value() []string {
	v, _ := p.word()
	return []string{v}
}

func (p *labelParser) number() (int64, error) {
	v, _ := p.word()
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || !isName(v) { // -1 is not a valid value
		return 0, p.invalid()
	}
	return n, nil
}

// set reads values in parentheses; a value may be empty.
func (p *labelParser) set() (values []string, err error) {
	if p.next() != "(" {
		return nil, p.invalid()
	}
	for {
		values = append(values, p.value()...)
		switch p.next() {
		case ",":
		case ")":
			slices.Sort(values)
			return slices.Clone(slices.Compact(values)), nil // no more capacity than needed
		default:
			return nil, p.invalid()
		}
	}
}
