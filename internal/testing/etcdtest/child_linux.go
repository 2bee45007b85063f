package etcdtest

import "syscall"

// child makes the kernel kill etcd when this process dies, however it does.
func child() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
