// Package image tests the content of the container image, without a container: the
// two programs alone in a root of their own, as the user that they have there.
package image
