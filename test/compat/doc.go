// Package compat runs other projects' etcd clients, unchanged, against a plain etcd and against
// cache nodes in front of one, and compares their answers.
//
//   - etcdctl 3.4 (Debian's etcd-client) and etcdctl of the version in go.mod:
//     scripts in testdata/etcdctl, with golden transcripts. A transcript is the
//     same for both targets; UPDATE=1 rewrites it from a plain etcd.
//   - the npm package etcd3: programs in npm, pinned by its package-lock.json.
//   - clientv3, with its packages concurrency, mirror and namespace.
//
// All targets are real processes. A missing program is downloaded into the user's cache directory;
// an unavailable one is skipped with a reason. `go test` runs a part, `make compat` everything.
package compat
