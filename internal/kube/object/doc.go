// Package object reads and writes the encodings of Kubernetes' API: objects,
// lists and the frames of watches, as protobuf and as JSON.
//
// It decodes no object. [Parse] finds the few fields that a cache needs (name,
// namespace, resourceVersion), [Object.Labels] and [Object.Field] those that
// selectors need, and everything else stays the apiserver's bytes. So it has no
// schema, and custom resources need none. [Object.WithVersion] replaces the
// resourceVersion in the bytes.
//
// Read [Object] first. All of it is values: functions of bytes, safe for
// concurrent use as long as no caller changes the bytes.
package object
