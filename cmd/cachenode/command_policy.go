package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/internal/auth/authz"
	"github.com/shardwatch/shardwatch/internal/auth/policy"
	"github.com/shardwatch/shardwatch/internal/kv"
)

func newPolicyCommand(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Check a policy, and query it",
		Long: `Check the file of --policy before a node reads it, and query the rights it grants.

A policy gives roles to identities; a role allows verbs on keys. Everything that no
rule allows is denied. docs/security.md describes the file.`,
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPolicyCheckCommand(p), newPolicyExplainCommand(p))
	return cmd
}

func newPolicyCheckCommand(p process) *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Check a policy",
		Long: `Check a policy, and the keys of tokens that it names, as a node would at its
start. Every mistake is on standard error, with its line and field.

Exit codes: 0 the policy is good, 2 it is not.`,
		Example: `  cachenode policy check policy.yaml`,
		Args:    oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := authz.Check(args[0])
			if err != nil {
				return &usageError{cmd.CommandPath(), err}
			}
			_, err = fmt.Fprintf(p.stdout, "%s is good: %d identities, roles %s\nlimits of each identity: %v\n",
				args[0], found.Identities(), strings.Join(found.Roles(), ", "), found.Limits())
			return err
		},
	}
}

// question has the arguments of `policy explain`.
type question struct {
	identities []string
	verb       string
	key        string
	prefix     bool
	rangeEnd   string
}

func newPolicyExplainCommand(p process) *cobra.Command {
	var q question
	cmd := &cobra.Command{
		Use:   "explain FILE",
		Short: "Show whether an identity may use a verb, and why",
		Long: `Show whether a policy allows an identity to use a verb on keys, and which lines decide.

A client's identity is proven by its certificate (all of uri:…, dns:… and cn:…) or its
token (sub:…); without --identity, the client is anonymous.

Exit codes: 0 allowed, 1 denied, 2 the policy or the question is wrong.`,
		Example: `  cachenode policy explain policy.yaml --identity cn:web --verb watch --key /pods/ --prefix
  cachenode policy explain policy.yaml --identity sub:system:serviceaccount:ops:admin --verb operator:write`,
		Args: oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := authz.Check(args[0])
			if err != nil {
				return &usageError{cmd.CommandPath(), err}
			}
			verb, r, err := q.parse()
			if err != nil {
				return &usageError{cmd.CommandPath(), err}
			}
			return q.answer(p.stdout, found, verb, r)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringArrayVar(&q.identities, "identity", nil, "`name` of the client, such as cn:web; repeatable")
	fs.StringVar(&q.verb, "verb", "", "`verb`: read, watch, write, operator:read or operator:write; required")
	fs.StringVar(&q.key, "key", "", "the `key` to check")
	fs.BoolVar(&q.prefix, "prefix", false, "all keys that begin with --key")
	fs.StringVar(&q.rangeEnd, "range-end", "", "all keys from --key up to this `key`, exclusive")
	completeWith(cmd, "verb", "read", "watch", "write", "operator:read", "operator:write")
	return cmd
}

func oneFile(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return &usageError{cmd.CommandPath(), fmt.Errorf("%d arguments: give only the policy's file", len(args))}
}

func (q *question) parse() (v policy.Verb, r kv.Range, err error) {
	if v, err = policy.ParseVerb(q.verb); err != nil {
		return v, r, fmt.Errorf("--verb: %w", err)
	}
	switch {
	case !v.OfKeys() && (q.key != "" || q.prefix || q.rangeEnd != ""):
		err = fmt.Errorf("--verb %s does not apply to keys: omit --key, --prefix and --range-end", v)
	case !v.OfKeys():
	case q.prefix && q.rangeEnd != "":
		err = errors.New("--prefix and --range-end exclude each other")
	case q.prefix:
		r = kv.Prefix(q.key)
	case q.key == "":
		err = errors.New("--key is required; all keys are --key \"\" --prefix")
	case q.rangeEnd != "" && q.rangeEnd <= q.key:
		err = fmt.Errorf("--range-end %q is not after --key %q", q.rangeEnd, q.key)
	case q.rangeEnd != "":
		r = kv.Range{Start: q.key, End: q.rangeEnd}
	default:
		r = kv.Single(q.key)
	}
	return v, r, err
}

// errDenied reports that the identity is denied.
var errDenied = errors.New("denied")

// answer prints the verdict, and fails if the identity is denied.
func (q *question) answer(w io.Writer, found *policy.Policy, v policy.Verb, r kv.Range) error {
	allowed, because := found.Explain(q.identities, v, r)
	verdict := "denied"
	if allowed {
		verdict = "allowed"
	}
	if _, err := fmt.Fprintf(w, "%s\n  %s\nlimits: %v\n", verdict, strings.Join(because, "\n  "), found.Identity(q.identities).Limits); err != nil {
		return err
	}
	if !allowed {
		return errDenied
	}
	return nil
}
