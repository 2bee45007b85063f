// Package statuspage tries the status page as people do: in a browser, served by
// real nodes of which some die.
package statuspage
