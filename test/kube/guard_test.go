package kube_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/files/certtest"
	"github.com/shardwatch/shardwatch/internal/kube/api"
	"github.com/shardwatch/shardwatch/internal/kube/guard"
)

// as returns a client with a certificate.
func (c *cluster) as(t *testing.T, url string, leaf certtest.Leaf) *kubernetes.Clientset {
	t.Helper()
	return c.clients(t, url, func(cfg *rest.Config) {
		cfg.BearerToken, cfg.CertData, cfg.KeyData = "", leaf.Cert, leaf.Key
	})
}

// account creates a service account and returns a token of it.
func account(t *testing.T, admin *kubernetes.Clientset, name string) string {
	t.Helper()
	accounts := admin.CoreV1().ServiceAccounts("default")
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}

// grant lets a subject read config maps of the namespace default: all, or one of them.
func grant(t *testing.T, admin *kubernetes.Clientset, role string, subject rbacv1.Subject, names ...string) {
	t.Helper()
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}, ResourceNames: names}}
	if _, err := admin.RbacV1().Roles("default").Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: role}, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role}, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
	}
	if _, err := admin.RbacV1().RoleBindings("default").Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func user(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}
}

// eventually waits until try returns nil.
func eventually(ctx context.Context, t *testing.T, what string, try func() error) {
	t.Helper()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// TestRightsAreTheApiservers compares the clients' rights to read through the tier with the rules
// of the cluster: certificates, groups, service accounts, one object by name, and the identity of
// writes.
func TestRightsAreTheApiservers(t *testing.T) {
	c := newCluster(t)
	a := c.apiserver(t)
	admin := c.clients(t, a.url, nil)
	x := c.tier(t, nil, nil, a.url)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, name := range []string{"one", "two"} {
		if _, err := admin.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	grant(t, admin, "all", user("alice"))
	grant(t, admin, "group", rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "readers"})
	grant(t, admin, "account", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "reader"})
	grant(t, admin, "one", user("bob"), "one")
	token := account(t, admin, "reader")
	readers := map[string]*kubernetes.Clientset{
		"a user":            c.as(t, x.url, c.ca.Issue(t, "alice")),
		"a member":          c.as(t, x.url, c.ca.IssueIn(t, "carol", "readers")),
		"a service account": c.clients(t, x.url, func(cfg *rest.Config) { cfg.BearerToken = token }),
	}
	for name, set := range readers {
		// The apiserver applies a role some time after its creation.
		eventually(ctx, t, name, func() error {
			_, err := set.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
			return err
		})
		if _, err := set.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s lists secrets: %v", name, err)
		}
		if _, err := set.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{ResourceVersion: "0"}); !apierrors.IsForbidden(err) {
			t.Errorf("%s lists all namespaces: %v", name, err)
		}
		if err := set.CoreV1().ConfigMaps("default").Delete(ctx, "one", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s deletes: %v", name, err)
		}
	}
	bob := c.as(t, x.url, c.ca.Issue(t, "bob"))
	named := metav1.ListOptions{FieldSelector: "metadata.name=one", ResourceVersion: "0"}
	eventually(ctx, t, "one object", func() error {
		list, err := bob.CoreV1().ConfigMaps("default").List(ctx, named)
		if err == nil && len(list.Items) != 1 {
			t.Errorf("bob sees %d objects, want one", len(list.Items))
		}
		return err
	})
	if _, err := bob.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{ResourceVersion: "0"}); !apierrors.IsForbidden(err) {
		t.Errorf("bob lists all: %v", err)
	}
	stranger := c.as(t, x.url, certtest.NewCA(t, "kubernetes").Issue(t, "alice"))
	if _, err := stranger.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{ResourceVersion: "0"}); err == nil {
		t.Error("a certificate of another CA is taken")
	}
	c.identities(ctx, t, x, a)
}

// identities asks the apiserver, through the tier, for the client's identity.
func (c *cluster) identities(ctx context.Context, t *testing.T, x *tier, a *apiserver) {
	t.Helper()
	whoami := func(url string, leaf certtest.Leaf, headers map[string]string) string {
		client := &http.Client{Transport: c.transport(t, leaf)}
		body := `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/apis/authentication.k8s.io/v1/selfsubjectreviews", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		for name, value := range headers {
			req.Header.Set(name, value)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	carol := c.ca.IssueIn(t, "carol", "readers")
	forged := map[string]string{
		"X-Remote-User": "root", "X-Remote-Group": "system:masters", "X-Remote-Extra-Scopes": "all", "X-Remote-Uid": "0",
	}
	for _, headers := range []map[string]string{nil, forged} {
		got := whoami(x.url, carol, headers)
		for _, want := range []string{`"username":"carol"`, `"readers"`, `"system:authenticated"`} {
			if !strings.Contains(got, want) {
				t.Errorf("the apiserver sees %s, want %s", got, want)
			}
		}
		for _, wrong := range []string{"masters", "root", "scopes", "system:anonymous"} {
			if strings.Contains(got, wrong) {
				t.Errorf("the apiserver sees %s of the client's headers in %s", wrong, got)
			}
		}
	}
	// The apiserver decides about impersonation, for the client's own identity.
	if got := whoami(x.url, carol, map[string]string{"Impersonate-User": "root"}); !strings.Contains(got, `"code":403`) {
		t.Errorf("carol impersonates: %s", got)
	}
	root := c.ca.IssueIn(t, "root", "system:masters")
	if got := whoami(x.url, root, map[string]string{"Impersonate-User": "dave"}); !strings.Contains(got, `"username":"dave"`) {
		t.Errorf("an administrator impersonates: %s", got)
	}
}

// open opens a watch and returns its lines; they end with the watch.
func (c *cluster) open(ctx context.Context, t *testing.T, url string, leaf certtest.Leaf) <-chan string {
	t.Helper()
	return lines(ctx, t, &http.Client{Transport: c.transport(t, leaf)}, "", url+"/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=0&allowWatchBookmarks=true")
}

// lines opens a watch with a client or a token and returns its lines.
func lines(ctx context.Context, t *testing.T, client *http.Client, token, url string) <-chan string {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("watch: %s", resp.Status)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		defer resp.Body.Close()
		for s := bufio.NewScanner(resp.Body); s.Scan(); {
			select {
			case lines <- s.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	return lines
}

// TestAWatchEndsWithItsRight removes a role while watches are open.
func TestAWatchEndsWithItsRight(t *testing.T) {
	c := newCluster(t)
	a := c.apiserver(t)
	admin := c.clients(t, a.url, nil)
	x := c.tier(t, nil, nil, a.url)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	grant(t, admin, "loses", user("alice"))
	grant(t, admin, "keeps", user("bob"))
	alice, bob := c.ca.Issue(t, "alice"), c.ca.Issue(t, "bob")
	for _, leaf := range []certtest.Leaf{alice, bob} {
		set := c.as(t, x.url, leaf)
		eventually(ctx, t, "list", func() error {
			_, err := set.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
			return err
		})
	}
	ends, stays := c.open(ctx, t, x.url, alice), c.open(ctx, t, x.url, bob)
	if err := admin.RbacV1().RoleBindings("default").Delete(ctx, "loses", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	last := ""
	for line := range ends {
		last = line
	}
	if ctx.Err() != nil || !strings.Contains(last, `"BOOKMARK"`) {
		t.Errorf("the watch of a user without rights ended with %q, %v", last, ctx.Err())
	}
	if _, err := c.as(t, x.url, alice).CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{ResourceVersion: "0"}); !apierrors.IsForbidden(err) {
		t.Errorf("a user without rights lists: %v", err)
	}
	if _, err := admin.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "after"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for line := range stays {
		if strings.Contains(line, `"after"`) {
			return
		}
	}
	t.Errorf("the watch of the other user has ended: %v", ctx.Err())
}

// TestRightsWhileNoApiserverAnswers kills the only apiserver: the last allow stays valid for a
// while, and then requests fail in a way that makes no informer list again.
func TestRightsWhileNoApiserverAnswers(t *testing.T) {
	c := newCluster(t)
	a := c.apiserver(t)
	admin := c.clients(t, a.url, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	long := c.tier(t, nil, func(cfg *guard.Config) { cfg.Fresh = time.Millisecond }, a.url)
	short := c.tier(t, nil, func(cfg *guard.Config) { cfg.Fresh, cfg.Stale = time.Millisecond, 2*time.Millisecond }, a.url)
	grant(t, admin, "account", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "reader"})
	token := account(t, admin, "reader")
	list := func(x *tier, options metav1.ListOptions) error {
		set := c.clients(t, x.url, func(cfg *rest.Config) { cfg.BearerToken = token })
		var status apierrors.APIStatus
		body, err := set.CoreV1().RESTClient().Get().Resource("configmaps").Namespace("default").
			Param("resourceVersion", "0").Param("labelSelector", options.LabelSelector).MaxRetries(0).DoRaw(ctx)
		if errors.As(err, &status) {
			return fmt.Errorf("%d %s", status.Status().Code, body)
		}
		return err
	}
	for _, x := range []*tier{long, short} {
		eventually(ctx, t, "list", func() error { return list(x, metav1.ListOptions{}) })
	}
	a.kill()
	if err := list(long, metav1.ListOptions{}); err != nil {
		t.Errorf("a request that was allowed: %v", err)
	}
	if err := list(long, metav1.ListOptions{LabelSelector: "a=b"}); err == nil || !strings.HasPrefix(err.Error(), "429") {
		t.Errorf("another request: %v, want 429", err)
	}
	if err := list(short, metav1.ListOptions{}); err == nil || !strings.HasPrefix(err.Error(), "429") {
		t.Errorf("a request that was allowed long ago: %v, want 429", err)
	}
	a.start(t)
	for _, x := range []*tier{long, short} {
		eventually(ctx, t, "list", func() error {
			err := list(x, metav1.ListOptions{})
			if err != nil && !strings.HasPrefix(err.Error(), "429") {
				t.Errorf("while the apiserver starts: %v", err)
			}
			return err
		})
	}
}

// TestAUserHasAPartOfTheWatches opens more watches than permitted for one user.
func TestAUserHasAPartOfTheWatches(t *testing.T) {
	c := newCluster(t)
	a := c.apiserver(t)
	x := c.tier(t, func(cfg *api.Config) {
		cfg.Budget = budget.New(64 << 20)
		cfg.Budget.BoundWatches(4 * 32 << 10)
	}, nil, a.url)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	one, two := c.ca.IssueIn(t, "one", "system:masters"), c.ca.IssueIn(t, "two", "system:masters")
	for range 2 {
		c.open(ctx, t, x.url, one)
	}
	client := &http.Client{Transport: c.transport(t, one)}
	resp, err := client.Get(x.url + "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=0")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
		t.Errorf("a watch too many: %s, Retry-After %q", resp.Status, resp.Header.Get("Retry-After"))
	}
	c.open(ctx, t, x.url, two)
}
