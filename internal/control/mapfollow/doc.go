// Package mapfollow keeps the shard map of a node that does not vote up to date: it
// follows the voters.
//
// Read [Follower] first. All its methods may be called from any goroutine.
package mapfollow
