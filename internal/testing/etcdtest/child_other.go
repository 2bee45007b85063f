//go:build !linux

package etcdtest

import "syscall"

// child returns no attributes, since this system cannot end a child with its parent: an
// etcd outlives a test that is killed.
func child() *syscall.SysProcAttr { return nil }
