// Package image tries what the container image has in it, without a container: the
// two programs alone in a root of their own, as the user that they have there.
package image
