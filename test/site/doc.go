// Package site tests that the documentation site can be built, and that its links are checked.
package site
