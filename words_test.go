package shardwatch_test

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// instead has the words and patterns that docs, comments, logs, errors and help must not
// contain, each with its replacement. Case is ignored.
var instead = map[string]string{
	`nothing but`:                            `"only"`,
	`(nobody|somebody|everybody)`:            "the actor's name: client, node, caller, operator",
	`in vain`:                                `"fails" or "rejected"`,
	`by and by`:                              `"gradually"`,
	`the way out`:                            `"the remedy"`,
	`has it that`:                            `"reports"`,
	`gossip says`:                            `"gossip reports"`,
	`gives? no answer`:                       `"does not answer"`,
	`(trying|tries|try|tried) on`:            `"retrying"`,
	`will keep trying`:                       `"retrying"`,
	`come again`:                             `"retry"`,
	`say who you are`:                        `"authenticate"`,
	`hangs? up`:                              `"closes the connection"`,
	`for your own good`:                      `"as a safety check"`,
	`not taken, or no longer`:                `"invalid or expired"`,
	`road not taken`:                         `"alternatives"`,
	`one door per`:                           `"one package per"`,
	`who asks`:                               `"the caller"`,
	`(go|goes|going|went) on (at|elsewhere)`: `"resumes on"`,
	`(is|are) loaded anew`:                   `"reloaded"`,
	`not as it should be`:                    `"the condition does not hold"`,
	`in the clear`:                           `"unencrypted"`,
	`it is said that`:                        `"the name of the speaker"`,
	`does not lie (in|behind|inside|at)`:     `"is outside", "is not after"`,
	`say goodbye|said goodbye`:               `"leave"`,
	`passage`:                                `"proxy connection"`,
	`rungs`:                                  `"serve modes" or "catch-ups"`,
	`what it (has|had) to say`:               `"its messages", "its report"`,
	`whom`:                                   `the actor's name`,
	`who(so)?ever`:                           `the actor's name, or "any client that"`,
	`for good`:                               "permanently",
	`what is wanted`:                         `"the request", "the requested events"`,
	`(is|are) none of an?`:                   `"is not"`,
	`who votes`:                              `"voters"`,
	`who watches what`:                       `"the watches, their clients and keys"`,
	`who may do what`:                        `"rights"`,
	`whatever becomes of`:                    `"even if"`,
	`goes on behind`:                         `"continues after"`,
	`go on elsewhere`:                        `"resume on another node"`,
	`what is older`:                          `"older events"`,
	`what clients can make`:                  `"the memory that clients can make"`,
	`what was understood`:                    `"the valid settings"`,
	`is what an? [a-z]+ needs`:               `"configures"`,
	`goes on`:                                `"continues", "resumes"`,
	`(cannot|could not) go on`:               `"cannot continue"`,
	`where it was`:                           `"its last position"`,
	`no one`:                                 `the actor's name`,
	`lest`:                                   `"so that no"`,
	`who (left|reads|waits|writes|needs|wants|holds)`:                `the actor's name`,
	`what (they|he) (have|had|has)`:                                  `"their state", "their data"`,
	`what follows`:                                                   `"the rest"`,
	`what is (held|sent|due|left|here|watched|fetched|needed|ready)`: `the noun: "the sent bytes", "the watched range"`,
	`what is known of`:                                               `"the knowledge about"`,
	`of what is`:                                                     `"of the", and the noun`,
	`(is|are|was) told`:                                              `"receives", "learns"`,
	`(is|are) about no`:                                              `"concerns no", "belongs to no"`,
	`(gives?|gave|given) back`:                                       `"returns" or "releases"`,
	`no more of it`:                                                  `"no further", and the noun`,
	`(goes|go|going) by`:                                             `"uses", "follows"`,
	`knows? of`:                                                      `"has seen", "has"`,
	`comes? to it`:                                                   `"reaches"`,
	`for ever`:                                                       `"permanently", "without end"`,
	`those who`:                                                      `the actors' name`,
	`by chance`:                                                      `"at random"`,
	`stands? alone`:                                                  `"is isolated"`,
	`to its end`:                                                     `"completely"`,
	`(reads|ends) by itself`:                                         `"on its own", "unasked"`,
}

// TestWords rejects the words of instead.
func TestWords(t *testing.T) {
	words := slices.Sorted(maps.Keys(instead))
	banned := regexp.MustCompile(`(?i)\b(` + strings.Join(words, "|") + `)\b`)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != "." || path == "test/mutants" || path == "bin"):
			return fs.SkipDir // mutants quote code
		case d.IsDir() || path == "CHANGELOG.md" || !readable(path):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err //nolint:wrapcheck // it names the file
		}
		for line, prose := range proseOf(path, text) {
			if word := banned.FindString(prose); word != "" {
				t.Errorf("%s:%d: %q: write %s", path, line, word, betterFor(word))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func betterFor(word string) string {
	for pattern, better := range instead {
		if regexp.MustCompile(`(?i)^(` + pattern + `)$`).MatchString(word) {
			return better
		}
	}
	return "something else"
}

// readable reports whether a file has prose to check. Tests and generated code are exempt.
func readable(path string) bool {
	switch filepath.Ext(path) {
	case ".go":
		return !strings.HasSuffix(path, "_test.go") && !strings.HasSuffix(path, ".pb.go")
	case ".md", ".yaml", ".html":
		return true
	}
	return false
}

// proseOf returns the prose of a file by line: of Go, the comments and the strings of
// several words; otherwise the whole text.
func proseOf(path string, text []byte) map[int]string {
	out := map[int]string{}
	add := func(line int, prose string) {
		for part := range strings.Lines(prose) {
			out[line] += " " + part
			line++
		}
	}
	if filepath.Ext(path) != ".go" {
		add(1, string(text))
		return out
	}
	files := token.NewFileSet()
	file := files.AddFile(path, -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	for {
		at, kind, literal := s.Scan()
		switch {
		case kind == token.EOF:
			return out
		case kind == token.COMMENT, kind == token.STRING && strings.Contains(literal, " "):
			add(files.Position(at).Line, literal)
		}
	}
}
