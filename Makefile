# Yare. `make help` lists what can be made.
SHELL := /bin/bash
.DEFAULT_GOAL := help

VERSION   := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS   := -s -w -X github.com/yare-project/yare/internal/version.build=$(VERSION)
BIN       := $(CURDIR)/bin
RUNTIME   := $(BIN)/runtime
DATA_DIR  ?= /var/lib/yare
UP_FLAGS  ?=
FUZZTIME  ?= 5m
SIM       ?= 100000,1000000
PACKAGES  := git gcc libc6-dev libseccomp-dev pkg-config make nftables iproute2 busybox-static ca-certificates

export CGO_ENABLED ?= 0

.PHONY: help up down build programs images test check bench bench-scheduler sim soak prepare clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: prepare build programs images ## Build Yare and start a single-node cluster in the background
	$(BIN)/yare up -d --data-dir $(DATA_DIR) $(UP_FLAGS)
	$(BIN)/yare image import --data-dir $(DATA_DIR) $(BIN)/images/*.tar

down: ## Stop the cluster and leave the host as it was (data stays; `make down PURGE=1` removes it)
	$(BIN)/yare down --data-dir $(DATA_DIR) $(if $(PURGE),--purge) $(UP_FLAGS)

build: ## Build bin/yare
	go build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/yare ./cmd/yare

programs: $(RUNTIME)/.built ## Build containerd, its shim, runc and the CNI plugins from pinned modules

$(RUNTIME)/.built: node/runtime/programs/go.mod node/runtime/programs/go.sum $(shell find node/runtime/programs node/runtime/pause -name '*.go' -o -name 'Makefile')
	$(MAKE) -C node/runtime/programs BIN=$(RUNTIME)
	touch $@

images: build $(BIN)/images/shop.tar $(BIN)/images/busybox.tar ## Make the images of the examples and tests from local files

$(BIN)/images/shop.tar: $(wildcard examples/shop/app/*.go)
	go build -trimpath -ldflags '-s -w' -o $(BIN)/shop/shop ./examples/shop/app
	$(BIN)/yare image build --output $@ --tag yare.dev/shop:1 --entrypoint /shop --user 65532 $(BIN)/shop

# busybox is static, but looks names up through the C library's plug-ins: they come along.
NSS := libc.so.6 libresolv.so.2 libnss_dns.so.2 libnss_files.so.2
LIB := lib/$(shell gcc -print-multiarch)

$(BIN)/images/busybox.tar: /bin/busybox Makefile
	rm -rf $(BIN)/busybox && mkdir -p $(BIN)/busybox/{bin,tmp,etc,root,lib64,$(LIB)} && cp /bin/busybox $(BIN)/busybox/bin/
	for a in $$(/bin/busybox --list); do [ $$a = busybox ] || ln -s busybox $(BIN)/busybox/bin/$$a; done
	cp -L $(addprefix /$(LIB)/,$(NSS)) $(BIN)/busybox/$(LIB)/ && cp -L /lib64/ld-linux-* $(BIN)/busybox/lib64/ 2>/dev/null || true
	echo 'hosts: files dns' >$(BIN)/busybox/etc/nsswitch.conf && echo 'root:x:0:0:root:/root:/bin/sh' >$(BIN)/busybox/etc/passwd
	$(BIN)/yare image build --output $@ --tag yare.dev/busybox:1 --cmd sh --env PATH=/bin $(BIN)/busybox

test: prepare build programs images ## Run all tests: unit, scenario, and end to end with real containers
	go vet ./...
	go test -timeout 20m $$(go list ./... | grep -v /test/e2e)
	cd test/operators && go test -count=1 -timeout 20m ./... # it builds yare, which the test cache does not see
	cd examples/scheduler-plugin && go vet . && go test -count=1 -timeout 5m .
	go test -timeout 20m ./test/e2e

check: ## Format, vet, and check the house rules (seconds)
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo 'run gofmt -w on these'; exit 1; }
	go vet ./...
	go test ./tools

bench: build programs ## Print start-up time, memory and the cost of each hop on this machine
	go run ./test/bench -yare $(BIN)/yare

bench-scheduler: build ## Print how many pods a second are placed, by workload: in memory, and over the API
	go run ./test/benchscheduler -yare $(BIN)/yare $(BENCH_FLAGS)

sim: ## Simulate 100,000 nodes and 1,000,000 pods in virtual time (minutes, some GiB); SIM=NODES,PODS
	YARE_SIM=$(SIM) go test ./sim -run TestLarge -v -timeout 1h

soak: build programs images ## The fault and fuzz runs, long
	YARE_SOAK=1 go test -timeout 4h ./store/... ./apiserver/... ./scheduler/... ./sim ./test/...
	set -o pipefail; grep -rn '^func Fuzz' --include='*_test.go' . | sed -E 's|^(.*)/[^/]*:[0-9]+:func (Fuzz[A-Za-z0-9]*)\(.*|\1 \2|' | while read -r dir target; do \
	  go test "$$dir" -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5s || exit 1; done

prepare: ## Install the Debian packages that building and running need, where missing
	@missing=(); for p in $(PACKAGES); do dpkg -s $$p >/dev/null 2>&1 || missing+=($$p); done; \
	if [ $${#missing[@]} -gt 0 ]; then echo "installing $${missing[*]}"; apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$${missing[@]}"; fi
	@go version >/dev/null 2>&1 || { echo 'yare: Go is missing: install Go 1.26 or newer and put it on PATH'; exit 1; }

clean: ## Remove what was built
	rm -rf $(BIN)
