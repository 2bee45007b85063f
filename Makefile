# Every target works in a clean clone with Go, git and a C compiler (for -race).
# tools/*/go.mod pin the tools; tools/pinned builds each on its first use.
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
seeds: ## Run the random tests repeatedly with new seeds (ARGS="-count=20 ./internal/cache"; TEST_SEED=7 repeats one)
	TEST_SEED=$${TEST_SEED:-random} go test -short -timeout 2h $(if $(ARGS),$(ARGS),-count=5 work)

.PHONY: bench
bench: ## Measure etcd, its grpc-proxy and cache nodes side by side, in a quarter of an hour (ARGS="--help": usage)
	go run ./bench/compare $(ARGS)

.PHONY: microbench
microbench: ## Run the benchmarks of the cache, for benchstat
	go test -run '^$$' -bench . -benchmem ./internal/cache

.PHONY: bench-catchup
bench-catchup: ## Compare the cost of catching up after 100,000 revisions (ARGS="--help": usage)
	go run ./bench/catchup $(ARGS)

.PHONY: scale
scale: ## Plan a cluster of 1,000 nodes and 100,000 shards, in a few minutes (ARGS="--live 200" runs 200 nodes in memory)
	go run ./bench/scale $(ARGS)

.PHONY: chaos
chaos: ## Inject every fault into real nodes under load, then into nodes in front of kube-apiservers (ARGS="--help": usage; ORACLE="-oracle.for=2m": only the latter)
	$(if $(ORACLE),,go run ./test/chaos/cmd/chaos $(ARGS))
	$(if $(ARGS),,TEST_SEED=$${TEST_SEED:-random} go test -C test/kube -run '^TestOracle$$' -count=1 -timeout 2h -v . -args -oracle.for=5m $(ORACLE))

.PHONY: conformance
conformance: ## Test a client of the native API against scripted nodes (ARGS="-- COMMAND", ARGS=--list)
	go run ./test/conformance/cmd/conformance $(ARGS)

.PHONY: hostile
hostile: ## Run every attack on a real node with other clients (ARGS="--help": usage)
	go run ./test/hostile/cmd/hostile $(ARGS)

.PHONY: h2spec
h2spec: ## Run h2spec's cases against the HTTP/2 server of the client port
	H2SPEC="$$(tools/pinned h2spec)" go test ./internal/edge/grpcserver -run H2Spec -count=1 -v $(ARGS)

.PHONY: lifecycle
lifecycle: ## Run the StatefulSet's complete life cycle with processes: update, scale, evict, lose, upgrade (root)
	go test ./test/lifecycle -count=1 -v -timeout 30m -lifecycle.whole $(ARGS)

.PHONY: mutants
mutants: ## Build with one bug at a time and check that the tests fail (ARGS="--only internal/cache")
	go run ./test/mutants/cmd/mutants $(ARGS)

.PHONY: compat
compat: export COMPAT = 1
compat: ## Run all other projects' etcd clients against cache nodes; clients that cannot be installed or built fail
	go test -count=1 -timeout 60m -v ./test/compat
	cd test/compat/kubernetes && go test -count=1 -timeout 3h -v .
	go test -C test/kube -count=1 -timeout 1h -v .
	go test -C test/kube -count=1 -timeout 1h -v . -args -apiserver=1.37

.PHONY: bench-kube
bench-kube: ## Kill apiservers and nodes of 500 and 5,000 informers, and measure the cost of watches, also with apiservers only (ARGS="-storm.cycles=1")
	go test -C test/kube -run TestStorms -count=1 -timeout 3h -v . -args -storm.informers=500 -storm.objects=1000 -storm.cycles=10 -storm.sides=tier,shared,apiservers $(ARGS)
	go test -C test/kube -run TestStorms -count=1 -timeout 1h -v . -args -storm.informers=5000 -storm.objects=1000 -storm.cycles=1 -storm.rate=2 $(ARGS)
	go test -C test/kube -run TestCost -count=1 -timeout 1h -v . -args -cost.pods=10000 -cost.all=500 -cost.kubelets=5000 -cost.writes=200 -cost.lists=10 -cost.settle=1s

.PHONY: differential
differential: ## Send etcd and a cluster the same requests for an hour, and compare (ARGS="-differential.for=5m")
	go test ./test/differential -run ForLong -count=1 -v -timeout 0 $(if $(ARGS),$(ARGS),-differential.for=1h)

.PHONY: image
image: ## Build the container image with Docker (ARGS=name:tag), or list its contents
	tools/image $(ARGS)

.PHONY: release
release: ## Build a release's archives, bills of materials and checksums in dist/release
	tools/release

.PHONY: release-check
release-check: ## Build a release twice, from scratch in two places, and compare each byte
	tools/release --check

.PHONY: manifests
manifests: ## Build deploy/k8s into dist/manifests and check it against its consumers
	mkdir -p dist/manifests
	for o in deploy/k8s/overlays/*/; do "$$(tools/pinned kustomize)" build "$$o" > "dist/manifests/$$(basename "$$o").yaml"; done
	go test -C test/manifests ./...

.PHONY: site
site: ## Build the documentation site from docs/ into dist/site, and check its links
	tools/site $(ARGS)

.PHONY: check
check: ## Run all steps of CI
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
generate-check: ## Fail if generated code is stale
	tools/generate --check

.PHONY: proto-lint
proto-lint: ## Check the style of api/proto
	"$$(tools/pinned buf)" lint
	"$$(tools/pinned buf)" format --diff --exit-code

.PHONY: proto-breaking
proto-breaking: ## Check for breaking changes of the API (AGAINST=a commit or tag)
	tools/breaking $(AGAINST)

.PHONY: clean
clean: ## Remove all build results
	rm -rf bin dist
