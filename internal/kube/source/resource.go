package source

import (
	"fmt"
	"strings"

	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Resource is a resource in one encoding, which one source follows.
type Resource struct {
	Group, Version string // Group is empty for the core group
	Name           string // as in URLs: pods
	Encoding       object.Encoding
}

// String returns the resource for logs.
func (r Resource) String() string {
	return r.Plain() + "/" + r.Encoding.String()
}

// Plain returns the resource without its encoding, in the form of --kube-preload: pods.v1, or
// deployments.v1.apps.
func (r Resource) Plain() string {
	if r.Group == "" {
		return r.Name + "." + r.Version
	}
	return r.Name + "." + r.Version + "." + r.Group
}

// IsEvents reports whether the objects are Kubernetes' Events. Apiservers have no watch cache for
// these, and so send no bookmarks. Events expire with leases of etcd, each of which deletes many of
// them in one version.
func (r Resource) IsEvents() bool {
	return r.Name == "events" && (r.Group == "" || r.Group == "events.k8s.io")
}

// Path returns the path of the resource in all namespaces.
func (r Resource) Path() string {
	if r.Group == "" {
		return "/api/" + r.Version + "/" + r.Name
	}
	return "/apis/" + r.Group + "/" + r.Version + "/" + r.Name
}

// ParsePath reads /api/v1/pods, /apis/apps/v1/namespaces/a/deployments/b and the like; name is
// empty for all objects. It returns false for subresources and other paths.
func ParsePath(path string) (r Resource, namespace, name string, ok bool) {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		r.Version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		r.Group, r.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return r, "", "", false
	}
	for _, part := range parts {
		if part == "" || part == "watch" || part == "proxy" {
			return r, "", "", false // the watch paths of old clients, and paths that proxies normalize
		}
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		namespace, parts = parts[1], parts[2:]
	}
	r.Name = parts[0]
	if r.Name == "status" || r.Name == "finalize" { // a subresource of a namespace
		return r, "", "", false
	}
	if len(parts) == 2 {
		name = parts[1]
	}
	return r, namespace, name, len(parts) <= 2
}

// Key returns the key of an object. A cluster-scoped object has an empty
// namespace. No part contains a slash, so the keys of two objects differ.
func (r Resource) Key(namespace, name string) string {
	return r.Prefix() + namespace + "/" + name
}

// InNamespace returns the keys of the objects of a namespace; of all
// namespaces if it is empty.
func (r Resource) InNamespace(namespace string) kv.Range {
	if namespace == "" {
		return kv.Prefix(r.Prefix())
	}
	return kv.Prefix(r.Prefix() + namespace + "/")
}

// ParseResource returns the resource whose keys have a prefix, in the encoding of a media
// type.
func ParseResource(prefix, mediaType string) (r Resource, ok bool) {
	parts := strings.Split(prefix, "/")
	if len(parts) != 5 || parts[0] != "" || parts[2] == "" || parts[3] == "" || parts[4] != "" {
		return r, false
	}
	r = Resource{Group: parts[1], Version: parts[2], Name: parts[3], Encoding: object.JSON}
	if mediaType == object.Protobuf.MediaType() {
		r.Encoding = object.Protobuf
	}
	return r, mediaType == r.Encoding.MediaType()
}

// Prefix returns the prefix of all keys of the resource.
func (r Resource) Prefix() string {
	return "/" + r.Group + "/" + r.Version + "/" + r.Name + "/"
}

// item returns an object as a key/value at its version.
func (r Resource) item(raw []byte) (*kv.KeyValue, error) {
	o, err := object.Parse(r.Encoding, raw)
	if err != nil {
		return nil, err
	}
	version, err := o.Version()
	if err != nil {
		return nil, err
	}
	name, namespace := string(o.Name), string(o.Namespace)
	if name == "" || strings.Contains(name, "/") || strings.Contains(namespace, "/") {
		return nil, fmt.Errorf("%w: %s has the name %.100q in the namespace %.100q", object.ErrMalformed, r, name, namespace)
	}
	return kv.NewKeyValue(kv.Fields{Key: []byte(r.Key(namespace, name)), Value: raw, ModRevision: kv.Revision(version)}), nil
}
