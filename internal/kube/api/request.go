package api

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shardwatch/shardwatch/internal/kube/guard"
	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kube/selector"
	"github.com/shardwatch/shardwatch/internal/kube/source"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// form is an encoding of objects that a client accepts.
type form struct {
	enc     object.Encoding
	partial bool // PartialObjectMetadata
}

// request is a read that caches may answer.
type request struct {
	resource  source.Resource // in the current form
	forms     []form          // accepted by the client, in its order
	form      form
	namespace string
	name      string // of a get
	selector  selector.Selector
	// labels and fields are the text of the selector.
	labels, fields string

	watch         bool
	socket        bool // a watch over a WebSocket
	bookmarks     bool
	initialEvents bool
	timeout       time.Duration // 0: unset
	// unset: the answer must not be older than the request. Otherwise version is
	// the oldest acceptable version, or the only one if exact.
	unset, exact bool
	version      kv.Revision
	limit        int
	next         string // from a continue token: the key to resume at
	chunked      bool   // version and next are from a continue token
}

// parse reads a request. It returns false for requests that an apiserver must answer;
// these include invalid requests.
func parse(r *http.Request) (*request, bool) {
	resource, namespace, name, ok := source.ParsePath(r.URL.Path)
	q := &request{resource: resource, namespace: namespace, name: name}
	if !ok || r.Method != http.MethodGet || !q.overSocket(r) {
		return nil, false
	}
	query := r.URL.Query()
	for name, values := range query {
		if len(values) != 1 || !q.parameter(name, values[0], query) {
			return nil, false
		}
	}
	var err error
	q.labels, q.fields = query.Get("labelSelector"), query.Get("fieldSelector")
	if q.selector, err = selector.Parse(q.labels, q.fields); err != nil || q.name != "" && q.labels+q.fields != "" {
		return nil, false // apiservers ignore the selector of a get, also for authorization
	}
	q.forms = accepted(r.Header.Values("Accept"), !q.watch && q.name == "")
	if q.socket {
		q.forms = onlyJSON(q.forms)
	}
	if len(q.forms) == 0 || q.socket && !q.watch {
		return nil, false
	}
	// A get without a version requires the newest object, which caches may not have.
	return q, q.parseVersion(query) && (q.name == "" || !q.unset)
}

// attributes returns the attributes by which an apiserver authorizes a request.
func (q *request) attributes() *guard.Attributes {
	a := &guard.Attributes{
		Verb: "list", Group: q.resource.Group, Version: q.resource.Version, Resource: q.resource.Name,
		Namespace: q.namespace, Name: q.name, FieldSelector: q.fields, LabelSelector: q.labels,
	}
	switch {
	case q.name != "":
		a.Verb = "get"
	case q.watch:
		a.Verb = "watch"
	}
	if name, ok := q.selector.Exact("metadata.name"); ok && q.name == "" {
		a.Name = name // a role may name the object
	}
	if a.Group == "" && a.Resource == "namespaces" && a.Namespace == "" {
		a.Namespace = q.name
	}
	return a
}

// parameter reads a query parameter. It returns false for unknown parameters.
func (q *request) parameter(name, value string, all url.Values) bool {
	yes, err := strconv.ParseBool(value)
	switch name {
	case "watch":
		q.watch = yes
		return err == nil && q.name == ""
	case "allowWatchBookmarks":
		q.bookmarks = yes
		return err == nil
	case "sendInitialEvents":
		q.initialEvents = yes
		return err == nil && all.Get("watch") != "" && all.Get("resourceVersionMatch") == "NotOlderThan"
	case "timeoutSeconds":
		seconds, err := strconv.Atoi(value)
		q.timeout = time.Duration(seconds) * time.Second
		return err == nil && seconds >= 0 && seconds < 1<<30
	case "timeout":
		// The client's own timeout: the client ends the request.
		_, err := time.ParseDuration(value)
		return err == nil
	case "limit":
		q.limit, err = strconv.Atoi(value)
		return err == nil && q.limit >= 0
	case "labelSelector", "fieldSelector", "resourceVersion", "resourceVersionMatch", "continue":
		return true
	}
	return false
}

func (q *request) parseVersion(query url.Values) bool {
	text, match := query.Get("resourceVersion"), query.Get("resourceVersionMatch")
	if token := query.Get("continue"); token != "" {
		return !q.watch && text == "" && match == "" && q.parseContinue(token)
	}
	q.unset = text == ""
	if !q.unset {
		v, err := strconv.ParseInt(text, 10, 64)
		if err != nil || v < 0 {
			return false
		}
		q.version = kv.Revision(v)
	}
	switch match {
	case "":
		// A list with a limit and a version has a special meaning, for old clients.
		return q.limit == 0 || q.unset || q.version == 0
	case "NotOlderThan":
		return !q.watch && !q.unset || q.initialEvents
	case "Exact":
		q.exact = true
		return !q.watch && q.name == "" && q.version > 0
	}
	return false
}

// accepted returns the forms of an Accept header that caches have, each once, of a list or of an
// object, up to the first unavailable form: a client that prefers a table gets it from an
// apiserver.
func accepted(headers []string, list bool) (forms []form) {
	text := strings.Join(headers, ",")
	if strings.TrimSpace(text) == "" {
		return []form{{enc: object.JSON}}
	}
	for media := range strings.SplitSeq(text, ",") {
		f, ok := parseMedia(media, list)
		if !ok {
			return forms
		}
		if !slices.Contains(forms, f) {
			forms = append(forms, f)
		}
	}
	return forms
}

func parseMedia(media string, list bool) (f form, ok bool) {
	parts := strings.Split(media, ";")
	switch strings.TrimSpace(parts[0]) {
	case object.Protobuf.MediaType():
		f.enc = object.Protobuf
	case object.JSON.MediaType(), "*/*", "application/*":
	default:
		return f, false
	}
	as := map[string]string{}
	for _, parameter := range parts[1:] {
		name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
		as[name] = value
	}
	partial := "PartialObjectMetadata"
	if list {
		partial += "List"
	}
	f.partial = as["as"] == partial && as["g"] == "meta.k8s.io" && as["v"] == "v1"
	for name, value := range as {
		switch {
		case name == "stream" && value == "watch":
		case name == "charset":
		case f.partial && (name == "as" || name == "g" || name == "v"):
		default:
			return f, false
		}
	}
	return f, true
}
