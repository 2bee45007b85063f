# Every target works in a clean clone with Go, git and a C compiler (for -race).
# Tools are pinned in tools/*/go.mod and built by tools/pinned when first used.
SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

.PHONY: help
help: ## Show the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build cachenode and cachectl into bin/
	go build -o bin/ ./cmd/...

.PHONY: dev
dev: ## Run a three-node cluster with its own etcd and a demo workload
	go run ./cmd/cachenode dev --demo

.PHONY: test
test: ## Run all tests, of all modules in go.work
	go test work

.PHONY: race
race: ## Run the tests with the race detector, without the longest ones
	go test -race -short work

.PHONY: seeds
seeds: ## Run the random tests with new seeds, again and again (ARGS="-count=20 ./internal/cache"; TEST_SEED=7 repeats one)
	TEST_SEED=$${TEST_SEED:-random} go test -short -timeout 2h $(if $(ARGS),$(ARGS),-count=5 work)

.PHONY: bench
bench: ## Measure etcd, its grpc-proxy and cache nodes side by side, in a quarter of an hour (ARGS="--help" shows how)
	go run ./bench/compare $(ARGS)

.PHONY: microbench
microbench: ## Run the benchmarks of the cache; compare runs with benchstat
	go test -run '^$$' -bench . -benchmem ./internal/cache

.PHONY: bench-catchup
bench-catchup: ## Compare what it costs to come back after 100,000 revisions (ARGS="--help" shows how)
	go run ./bench/catchup $(ARGS)

.PHONY: scale
scale: ## Plan a cluster of 1,000 nodes and 100,000 shards, in some minutes (ARGS="--live 200" runs 200 nodes in memory)
	go run ./bench/scale $(ARGS)

.PHONY: chaos
chaos: ## Break real nodes under load, in every way there is, then nodes before kube-apiservers (ARGS="--help" shows how; ORACLE="-oracle.for=2m": only the latter)
	$(if $(ORACLE),,go run ./test/chaos/cmd/chaos $(ARGS))
	$(if $(ARGS),,TEST_SEED=$${TEST_SEED:-random} go test -C test/kube -run '^TestOracle$$' -count=1 -timeout 2h -v . -args -oracle.for=5m $(ORACLE))

.PHONY: conformance
conformance: ## Test a client of the native API against scripted nodes (ARGS="-- COMMAND", ARGS=--list)
	go run ./test/conformance/cmd/conformance $(ARGS)

.PHONY: hostile
hostile: ## Attack a real node in every way there is, beside a quiet crowd (ARGS="--help" shows how)
	go run ./test/hostile/cmd/hostile $(ARGS)

.PHONY: h2spec
h2spec: ## Run h2spec's cases against the HTTP/2 server of the client port
	H2SPEC="$$(tools/pinned h2spec)" go test ./internal/edge/grpcserver -run H2Spec -count=1 -v $(ARGS)

.PHONY: lifecycle
lifecycle: ## Live the StatefulSet's life with processes, whole: update, scale, evict, lose, upgrade (root)
	go test ./test/lifecycle -count=1 -v -timeout 30m -lifecycle.whole $(ARGS)

.PHONY: mutants
mutants: ## Build with one bug at a time and check that the tests fail (ARGS="--only internal/cache")
	go run ./test/mutants/cmd/mutants $(ARGS)

.PHONY: compat
compat: export COMPAT = 1
compat: ## Run other people's etcd clients against cache nodes, all of them; what cannot be installed or built fails
	go test -count=1 -timeout 60m -v ./test/compat
	cd test/compat/kubernetes && go test -count=1 -timeout 3h -v .
	go test -C test/kube -count=1 -timeout 1h -v .
	go test -C test/kube -count=1 -timeout 1h -v . -args -apiserver=1.37

.PHONY: bench-kube
bench-kube: ## Fail apiservers and nodes below 500 and 5,000 informers, measure what watches cost, and apiservers alone beside them (ARGS="-storm.cycles=1")
	go test -C test/kube -run TestStorms -count=1 -timeout 3h -v . -args -storm.informers=500 -storm.objects=1000 -storm.cycles=10 -storm.sides=tier,shared,apiservers $(ARGS)
	go test -C test/kube -run TestStorms -count=1 -timeout 1h -v . -args -storm.informers=5000 -storm.objects=1000 -storm.cycles=1 -storm.rate=2 $(ARGS)
	go test -C test/kube -run TestCost -count=1 -timeout 1h -v . -args -cost.pods=10000 -cost.all=500 -cost.kubelets=5000 -cost.writes=200 -cost.lists=10 -cost.settle=1s

.PHONY: differential
differential: ## Ask etcd and a cluster the same for an hour, and compare (ARGS="-differential.for=5m")
	go test ./test/differential -run ForLong -count=1 -v -timeout 0 $(if $(ARGS),$(ARGS),-differential.for=1h)

.PHONY: image
image: ## Build the container image with Docker (ARGS=name:tag), or say what would be in it
	tools/image $(ARGS)

.PHONY: release
release: ## Make a release's archives, bills of materials and checksums in dist/release
	tools/release

.PHONY: release-check
release-check: ## Make a release twice, in two places from nothing, and compare each byte
	tools/release --check

.PHONY: manifests
manifests: ## Build deploy/k8s into dist/manifests and hold it against what will read it
	mkdir -p dist/manifests
	for o in deploy/k8s/overlays/*/; do "$$(tools/pinned kustomize)" build "$$o" > "dist/manifests/$$(basename "$$o").yaml"; done
	go test -C test/manifests ./...

.PHONY: site
site: ## Build the documentation site from docs/ into dist/site, and check its links
	tools/site $(ARGS)

.PHONY: check
check: ## What CI runs
	.ci/run

.PHONY: lint
lint: ## Check the code (reasons: .golangci.yml)
	"$$(tools/pinned golangci-lint)" run ./... ./client/... ./internal/files/...

.PHONY: fmt
fmt: ## Format the code
	"$$(tools/pinned golangci-lint)" fmt ./... # all modules: it follows folders

.PHONY: tidy
tidy: ## Run go mod tidy in the modules that depend on each other
	tools/tidy

.PHONY: generate
generate: ## Generate Go, Python and TypeScript from api/proto
	tools/generate

.PHONY: generate-check
generate-check: ## Fail when generated code is not what its sources say
	tools/generate --check

.PHONY: proto-lint
proto-lint: ## Check the style of api/proto
	"$$(tools/pinned buf)" lint
	"$$(tools/pinned buf)" format --diff --exit-code

.PHONY: proto-breaking
proto-breaking: ## Look for breaking changes of the API (AGAINST=a commit or tag)
	tools/breaking $(AGAINST)

.PHONY: clean
clean: ## Remove what was built here
	rm -rf bin dist
