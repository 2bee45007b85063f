//go:build !linux

package etcdtest

import "syscall"

// child returns no attributes, because this system cannot end a child with its parent: an
// etcd outlives a killed test.
func child() *syscall.SysProcAttr { return nil }
