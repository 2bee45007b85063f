// Package keys has the commands of cachectl that watch, read and write keys, one file for
// each. Read [Commands] first.
package keys
