package etcdtest

import "syscall"

// child makes the kernel kill etcd when this process dies, for any reason.
func child() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
