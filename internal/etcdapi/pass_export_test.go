package etcdapi

// IsDeadly is isDeadly, for tests.
func IsDeadly(txn []byte) bool { return isDeadly(txn) }
