//go:build !linux

package yield

func threads() {}

func lookAtNetwork() {}
