package guard

import (
	"context"

	"github.com/shardwatch/shardwatch/internal/kube/source"
)

// The paths of reviews.
const (
	tokenReviews  = "/apis/authentication.k8s.io/v1/tokenreviews"
	accessReviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
)

type typeMeta struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

type tokenReview struct {
	typeMeta
	Spec struct {
		Token string `json:"token"`
	} `json:"spec"`
	Status struct {
		Authenticated bool `json:"authenticated"`
		User          struct {
			Username string              `json:"username"`
			UID      string              `json:"uid"`
			Groups   []string            `json:"groups"`
			Extra    map[string][]string `json:"extra"`
		} `json:"user"`
	} `json:"status,omitzero"`
}

type selectorAttributes struct {
	Raw string `json:"rawSelector"`
}

type resourceAttributes struct {
	Namespace string              `json:"namespace,omitempty"`
	Verb      string              `json:"verb"`
	Group     string              `json:"group,omitempty"`
	Version   string              `json:"version"`
	Resource  string              `json:"resource"`
	Name      string              `json:"name,omitempty"`
	Fields    *selectorAttributes `json:"fieldSelector,omitempty"`
	Labels    *selectorAttributes `json:"labelSelector,omitempty"`
}

type accessReview struct {
	typeMeta
	Spec struct {
		Resource resourceAttributes  `json:"resourceAttributes"`
		User     string              `json:"user"`
		UID      string              `json:"uid,omitempty"`
		Groups   []string            `json:"groups,omitempty"`
		Extra    map[string][]string `json:"extra,omitempty"`
	} `json:"spec"`
	Status struct {
		Allowed bool `json:"allowed"`
	} `json:"status,omitzero"`
}

// reviewToken returns the identity of a token; nil: it is not valid.
func (g *Guard) reviewToken(ctx context.Context, token string) (*Identity, error) {
	in, out := tokenReview{typeMeta: typeMeta{"authentication.k8s.io/v1", "TokenReview"}}, tokenReview{}
	in.Spec.Token = token
	server, err := g.cfg.Apiservers.Post(ctx, tokenReviews, &in, &out)
	if err != nil && !source.Decisive(err) {
		return nil, err
	}
	g.tokens.Add(1)
	u := &out.Status.User
	if !out.Status.Authenticated || u.Username == "" {
		return nil, g.refusal(ctx, server)
	}
	return &Identity{User: u.Username, UID: u.UID, Groups: u.Groups, Extra: u.Extra}, nil
}

// reviewAccess reports whether an apiserver allows a request.
func (g *Guard) reviewAccess(ctx context.Context, id *Identity, a *Attributes) (bool, error) {
	in, out := accessReview{typeMeta: typeMeta{"authorization.k8s.io/v1", "SubjectAccessReview"}}, accessReview{}
	in.Spec.User, in.Spec.UID, in.Spec.Groups, in.Spec.Extra = id.User, id.UID, id.Groups, id.Extra
	in.Spec.Resource = resourceAttributes{
		Namespace: a.Namespace, Verb: a.Verb, Group: a.Group, Version: a.Version, Resource: a.Resource, Name: a.Name,
		Fields: selectorOf(a.FieldSelector), Labels: selectorOf(a.LabelSelector),
	}
	server, err := g.cfg.Apiservers.Post(ctx, accessReviews, &in, &out)
	if err != nil && !source.Decisive(err) {
		return false, err
	}
	g.accesses.Add(1)
	if !out.Status.Allowed {
		return false, g.refusal(ctx, server)
	}
	return true, nil
}

func selectorOf(raw string) *selectorAttributes {
	if raw == "" {
		return nil
	}
	return &selectorAttributes{Raw: raw}
}
