package node

import (
	"net/http"

	"github.com/shardwatch/shardwatch/internal/auth/authz"
)

// buildPolicy reads the policy, if one is configured.
func buildPolicy(n *Node) error {
	log := n.cfg.Audit
	if log == nil {
		log = n.log
	}
	n.audit = authz.NewAudit(log.WithGroup("audit"))
	if n.cfg.Policy == "" {
		return nil
	}
	c := authz.Defaults()
	c.File, c.Audit = n.cfg.Policy, n.audit
	var err error
	n.authorizer, err = authz.New(c)
	return err
}

// PolicyFiles are the policy's file and the file that it names; none without a
// policy.
func (n *Node) PolicyFiles() []string { return n.authorizer.Files() }

// ReloadPolicy reads the policy again. If it is invalid, the previous policy
// stays in force.
func (n *Node) ReloadPolicy() error { return n.authorizer.Reload() }

// TakesTokens reports whether the policy in force accepts bearer tokens.
func (n *Node) TakesTokens() bool { return n.authorizer.TakesTokens() }

// mayLook authorizes requests for metrics, the status page and profiles by the policy;
// nil without a policy.
func (n *Node) mayLook() func(*http.Request) error {
	if n.authorizer == nil {
		return nil
	}
	return n.authorizer.Web
}
