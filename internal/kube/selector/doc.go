// Package selector evaluates the label and field selectors of Kubernetes' API on
// objects that are not decoded.
//
// Read [Parse] first. A [Selector] is a value and safe for concurrent use.
package selector
