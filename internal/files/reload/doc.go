// Package reload loads files again when they change.
//
// Read [Watcher] first. It compares contents, not times or inodes: files that
// are replaced through a symbolic link, as Kubernetes does with the volumes of
// Secrets and ConfigMaps, are seen like those that are written in place. What
// cannot be loaded stays as it was, is logged once for each content, and is
// told by a metric until it is mended.
//
// All methods may be called concurrently.
package reload
