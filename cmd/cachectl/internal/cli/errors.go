package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client"
)

// UsageError reports that the command line is wrong. The command has done nothing.
type UsageError struct {
	// command is the command whose --help the message names.
	command string
	err     error
}

// Usage returns the error of a wrong command line.
func Usage(cmd *cobra.Command, err error) error { return &UsageError{cmd.CommandPath(), err} }

func (e *UsageError) Error() string { return e.err.Error() }

func (e *UsageError) Unwrap() error { return e.err }

// UnmetError reports that a condition of the command line does not hold.
type UnmetError struct{ Err error }

func (e *UnmetError) Error() string { return e.Err.Error() }

func (e *UnmetError) Unwrap() error { return e.Err }

// nobodyError reports that no node answered at the endpoints.
type nobodyError struct {
	endpoints []string
	tls       bool // the client used TLS
	err       error
}

func (e *nobodyError) Error() string {
	return fmt.Sprintf("no node answers at %s: %v\n%s", strings.Join(e.endpoints, ", "), e.err, e.advice())
}

// advice returns the remedy. gRPC reports the failure of a handshake only as text.
func (e *nobodyError) advice() string {
	text := e.err.Error()
	switch advice := AdviceOnTLS(text); {
	case advice != "":
		return advice
	case e.tls && hungUp(text): // a write may fail before the alert is read
		return "The endpoint closes the connection: if the nodes require a certificate, give --cert and --key."
	case strings.Contains(text, "error reading server preface"):
		return "The endpoint closes the connection: if the nodes speak TLS, give --cacert (or --tls)."
	}
	return "Start a cluster with 'cachenode dev', or name one with --endpoints, CACHECTL_ENDPOINTS or a context (cachectl config)."
}

// AdviceOnTLS returns the remedy for the text of a handshake error; "": it is another error.
func AdviceOnTLS(text string) string {
	switch {
	case strings.Contains(text, "first record does not look like a TLS handshake") || strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return `The nodes do not speak TLS: leave out --tls, --cacert, --cert and --key, or the context that has them (--context "").`
	case strings.Contains(text, "tls: certificate required"):
		return "The nodes require a certificate of the CA in their --tls-client-ca: see --cert and --key."
	case strings.Contains(text, "remote error: tls: "):
		return "The nodes reject the certificate of --cert; their logs have the reason."
	case strings.Contains(text, "tls: failed to verify certificate"):
		return "The certificate of the nodes is not signed by a CA in --cacert, or is not valid for this address."
	}
	return ""
}

// hungUp reports whether text describes a connection that was established, and ended.
func hungUp(text string) bool {
	return strings.Contains(text, "broken pipe") || strings.Contains(text, "connection reset by peer") ||
		strings.Contains(text, "error reading server preface")
}

func (e *nobodyError) Unwrap() error { return e.err }

// Report returns the message for the user when the command ends with err.
func Report(err error) string {
	text := fmt.Sprintf("cachectl: %s\n", err)
	var usage *UsageError
	if errors.As(err, &usage) {
		return text + fmt.Sprintf("See '%s --help'.\n", usage.command)
	}
	if errors.Is(err, client.ErrUnauthenticated) {
		text += "Authenticate with --token-file, or --cert and --key; to etcd, with --user and --password-file.\n"
	}
	var compacted *client.CompactedError
	if errors.As(err, &compacted) && compacted.Floor > 0 {
		text += fmt.Sprintf("With cachectl: watch --state, or --from %d.\n", compacted.Floor)
	}
	return text
}
