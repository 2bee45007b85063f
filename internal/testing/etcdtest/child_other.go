//go:build !linux

package etcdtest

import "syscall"

// child has nothing to say where no kernel would listen: an etcd outlives a
// test that is killed.
func child() *syscall.SysProcAttr { return nil }
