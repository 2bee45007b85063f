// Package modules tests the project's Go modules as their users get them: from a module
// proxy, without this tree and its go.work.
package modules
