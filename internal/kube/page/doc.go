// Package page serves the report of a node that serves Kubernetes' API, at its HTTP port: as JSON for
// programs, and as a page for people.
package page
