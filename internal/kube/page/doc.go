// Package page serves what a node that serves Kubernetes' API tells of itself, at its HTTP port: the
// report as JSON for programs, and a page for people.
package page
