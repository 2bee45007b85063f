// Package object reads and writes the encodings of Kubernetes' API: objects,
// lists and the frames of watches, as protobuf and as JSON.
//
// It does not decode objects. [Parse] finds the few fields that a cache needs (name,
// namespace, resourceVersion), [Object.Labels] and [Field.Value] the fields that
// selectors need. All other bytes stay as the apiserver sent them. So the package
// needs no schema, not even for custom resources. [Object.WithVersion] replaces the
// resourceVersion in the bytes.
//
// Read [Object] first. All functions work on values: they are safe for concurrent
// use as long as no caller changes the bytes.
package object
