// Package rights is what etcd's users may read, as a value: users have roles,
// roles have permissions, a permission is a range of keys.
//
// Read [Table.MayRead] first: it gives the verdict that etcd would give, key
// for key. What is not granted is denied. Everything here is data and pure
// functions; a [Table] never changes and may be used from any goroutine.
package rights
