// Package etcdroles evaluates the read rights of etcd's users: users have roles, roles have permissions, a
// permission is a range of keys.
//
// Read [Table.MayRead] first: it makes the same decision as etcd for each key. A key without a grant is denied.
// The package has only data and pure functions; a [Table] never changes and is safe for concurrent use.
package etcdroles
