// Package mapfollow keeps the shard map of a node that does not vote in step with that of
// the voters.
//
// Read [Follower] first. All its methods may be called from any goroutine.
package mapfollow
