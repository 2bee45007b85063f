// Package mutants lists bugs as text replacements in product code, each with the tests that must
// fail with it. A test suite that passes with a bug does not check the purpose of that code.
//
// Read [Mutant] and [All] first, then [Hunter]. The product has no hooks for mutants: go build's
// -overlay compiles them in.
package mutants

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Mutant is one bug.
type Mutant struct {
	// Name is unique. Bug describes the wrong behaviour.
	Name, Bug string
	// File contains Old exactly once, which becomes New. The path is relative to the package in a
	// [Group], and to the module in [All].
	File     string
	Old, New string
	// Tests are the names of the tests in Package that must fail, separated by "|". A [Group] sets
	// its own package if Package is empty.
	Tests   string
	Package string
	// Equivalent is the reason why no test can distinguish the mutant from the product. Such a
	// mutant must survive.
	Equivalent string
}

// Group is the mutants of one package.
type Group struct {
	Package string
	Mutants []Mutant
}

// Groups returns the mutants by package.
func Groups() []Group {
	return []Group{
		cacheGroup(), routerGroup(), serverGroup(), shardGroup(), etcdGroup(), etcdapiGroup(),
		plannerGroup(),
		mapchangeGroup(),
		placementGroup(), nodeGroup(), membershipGroup(), cachenodeGroup(),
		replicaGroup(),
		historyGroup(),
		guardGroup(),
		budgetGroup(),
		intakeGroup(),
		telemetryGroup(),
		fairGroup(),
		tlsGroup(),
		kvGroup(),
		configGroup(),
		netlimitGroup(),
		gatewayGroup(),
		grpcserverGroup(), receiveGroup(), rawconnGroup(),
		pumpGroup(),
		yieldGroup(),
		kubeObjectGroup(), kubeSelectorGroup(), kubeSourceGroup(), kubeTierGroup(), kubeConfigGroup(), kubeGuardGroup(), kubeAPIGroup(), kubeUpstreamGroup(), kubePastGroup(), kubeTransitionGroup(), kubePortGroup(),
		accessGroup(),
		policyGroup(),
		clientGroup(), clientCallsGroup(), clientIndexGroup(), clientMapfollowGroup(), clientNodesGroup(), clientConnectGroup(), clientOutcomeGroup(), clientShardmapGroup(), clientRetryGroup(),
		adminGroup(),
		cachectlGroup(),
		mapfollowGroup(), etcdclockGroup(), etcdconnGroup(), keytreeGroup(), etcdwatchGroup(), farewellGroup(), syncbatchGroup(), nativeGroup(), keybrowserGroup(), lineageGroup(), adminAPIGroup(), peerapiGroup(), verifyGroup(), copiesGroup(),
	}
}

// All returns all mutants.
func All() (all []Mutant) {
	for _, g := range Groups() {
		for _, m := range g.Mutants {
			m.File = path.Join(g.Package, m.File)
			if m.Package == "" {
				m.Package = g.Package
			}
			all = append(all, m)
		}
	}
	return all
}

// Apply returns the text of the mutant's file with the bug.
func (m Mutant) Apply(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return nil, fmt.Errorf("mutant %s: %w", m.Name, err)
	}
	if n := strings.Count(string(text), m.Old); n != 1 || m.Old == "" {
		return nil, fmt.Errorf("mutant %s: its old text occurs %d times in %s, want once; the code has changed: update the mutant in test/mutants, or replace it by one of the new code. The old text:\n%s", m.Name, n, m.File, m.Old)
	}
	if m.Old == m.New {
		return nil, fmt.Errorf("mutant %s changes nothing", m.Name)
	}
	mutated := strings.Replace(string(text), m.Old, m.New, 1)
	if _, err := parser.ParseFile(token.NewFileSet(), m.File, mutated, parser.SkipObjectResolution); err != nil {
		return nil, fmt.Errorf("mutant %s is not Go: %w", m.Name, err)
	}
	return []byte(mutated), nil
}

// Check returns an error if the mutant cannot be applied or if one of its tests
// does not exist.
func (m Mutant) Check(root string) error {
	if _, err := m.Apply(root); err != nil {
		return err
	}
	if m.Name == "" || m.Bug == "" || m.Tests == "" {
		return fmt.Errorf("mutant %q lacks a name, a description or its tests", m.Name)
	}
	files, err := filepath.Glob(filepath.Join(root, m.Package, "*_test.go"))
	if err != nil {
		return err
	}
	var tests strings.Builder
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		tests.Write(text)
	}
	for name := range strings.SplitSeq(m.Tests, "|") {
		if !strings.Contains(tests.String(), "\nfunc "+name+"(") {
			return fmt.Errorf("mutant %s: %s has no test %s", m.Name, m.Package, name)
		}
	}
	return nil
}

// testsOf returns the names of all tests of a package in mutants.
func testsOf(pkg string, all []Mutant) (tests []string) {
	for _, m := range all {
		if m.Package == pkg {
			tests = append(tests, strings.Split(m.Tests, "|")...)
		}
	}
	slices.Sort(tests)
	return slices.Compact(tests)
}
