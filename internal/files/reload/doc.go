// Package reload loads files again when they change.
//
// Read [Watcher] first. It compares contents, not times or inodes: files that
// are replaced through a symbolic link, as in Kubernetes' volumes of Secrets and
// ConfigMaps, are detected like files that are written in place. If a load fails,
// the previous contents stay in use; the error is logged once for each content,
// and a metric reports it until the files are corrected.
//
// All methods may be called concurrently.
package reload
