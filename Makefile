# The verbs of this repository; `make` alone lists them. Logic is in the scripts that they call.
.DEFAULT_GOAL := help
SHELL := /bin/bash

NAME ?= lab
NODES ?= 1
NODE ?= n1
N ?= 10
SEED ?= 1
MUTANTS ?= 40
WORLDS ?= 20000
SIZES ?= 100 1000
KILLS ?= 50
CLUSTERS ?= 500
EACH ?= 5
FROM ?=
# bash has a variable of this name, which counts its own seconds.
SECONDS ?= 300
IMG ?= rke-operator:dev
DOCKER ?= docker

TARGET := $(or $(CARGO_TARGET_DIR),target)
# The lab makes networks and mounts disks. Programs are built by you and run by root.
ROOT := $(if $(filter 0,$(shell id -u)),,sudo --preserve-env=XDG_CACHE_HOME,LAB_REGISTRY env "PATH=$(PATH)")
LAB := $(ROOT) $(TARGET)/debug/lab

.PHONY: help demo demo-day-two test test-ha fmt lint build bench bench-ha bench-fleet bench-hints bench-operator bench-cli docs site clean guards mutants worlds fuzz soak soak-ha soak-pods conformance lab lab-up lab-status lab-ssh lab-down \
	test-versions test-replaced dist docker-build docker-push install uninstall deploy undeploy run

help: ## Lists the verbs
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20
	@echo
	@echo '  NAME=$(NAME) NODES=$(NODES) NODE=$(NODE) for the lab; N=$(N) SEED=$(SEED) for soak and mutants; YES=1 skips all questions'

demo: ## Seven real nodes: a management cluster, the operator in it, a Cluster built, scaled, broken, upgraded and deleted
	@tests/demo.sh

demo-day-two: ## Six real nodes: backups in a bucket, all machines lost, restored to others, new authorities
	@tests/demo-day-two.sh

test: ## Everything: units, properties, fakes, the command line, documentation, and the lab's real nodes
	@tests/all.sh

test-ha: ## What takes long on several real nodes: a cluster that is broken in many ways, with a table
	@tests/ha.sh

test-versions: ## Releases of Kubernetes and of Debian, each on a real node, and one cluster through them: ONLY=1_33, ONLY=distributions
	@tests/versions.sh $(ONLY)

test-replaced: ## An earlier operator makes clusters, this one takes its place: make test-replaced FROM=<commit>
	@tests/replaced.sh '$(FROM)'

fmt: ## Formats
	cargo fmt --all

lint: ## Format, clippy and documentation, warnings are errors
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --locked --no-deps --quiet

build: ## The release binary
	cargo build --release --locked
	@echo "$(TARGET)/release/rke-operator"

dist: ## A release in dist/: static programs for amd64 and arm64, SBOMs, the chart, install.sh, formula, checksums
	@deploy/dist.sh

docker-build: ## The operator's image: make docker-build IMG=registry.example.com/rke-operator:dev
	@deploy/image.sh '$(IMG)'

docker-push: ## Pushes it: make docker-push IMG=registry.example.com/rke-operator:dev
	$(DOCKER) push '$(IMG)'

install: ## The custom resource definitions, into the cluster that kubectl talks to
	@deploy/cluster.sh install

uninstall: ## Takes them away again; refuses while there are Clusters
	@deploy/cluster.sh uninstall

deploy: ## The operator, into the cluster that kubectl talks to: make deploy IMG=…
	@deploy/cluster.sh deploy '$(IMG)'

undeploy: ## Takes the operator away; definitions, Clusters, credentials and states stay
	@deploy/cluster.sh undeploy

run: ## The operator as a process of this machine, for the cluster that kubectl talks to
	cargo run --locked -- run --namespace rke-operator

bench: ## A fresh `up` on a real node next to kubeadm, compared with a floor: make bench ROUNDS=5
	@bench/run.sh 1

bench-ha: ## The same for three control planes with etcd and two workers: make bench-ha ROUNDS=3
	@bench/run.sh 5

bench-fleet: ## `up` for 100 and 1000 nodes that are fakes in one process: make bench-fleet SIZES=100
	@bench/fleet.sh $(SIZES)

bench-hints: ## How fast the operator notices and cures faults, on real nodes: make bench-hints ROUNDS=20 ONLY=stopped
	@bench/hints.sh

bench-operator: ## The operator with many Clusters that are fakes: make bench-operator CLUSTERS=500 EACH=5 MINUTES=30
	@bench/operator.sh $(CLUSTERS) $(EACH) $(MINUTES)

bench-cli: ## How long `--help` and `validate` take next to `true`, and how large the program is: make bench-cli ROUNDS=100
	@bench/cli.sh

docs: ## Writes what is generated: the reference pages, the custom resource definitions, the chart's copies
	cargo run --quiet --locked -- reference
	UPDATE_CRDS=1 cargo test --quiet --locked --lib checked_in_definitions
	UPDATE_CHART=1 cargo test --quiet --locked --test it the_chart_has_the_files_of_deploy

site: ## The documents as a site in target/site; needs mdbook
	@command -v mdbook >/dev/null || { echo 'mdbook is missing: cargo install mdbook' >&2; exit 1; }
	mdbook build
	cargo nextest run --locked --test it --run-ignored only -E 'test(/docs_site::every_link_of_the_built_site/)'

clean: ## Removes what was built here; the lab's cache of images stays
	cargo clean

guards: ## Removes each guard and expects a test to fail: make guards ONLY=plan
	@ONLY="$(ONLY)" tests/guards.sh

mutants: ## Changes the code in one place at a time and runs the tests: make mutants MUTANTS=40 SEED=1
	@MUTANTS='$(MUTANTS)' SEED='$(SEED)' tests/mutants.sh

worlds: ## Lives of clusters on simulated worlds, in a release build: WORLDS=20000 ONLY=joint_
	PROPTEST_CASES=$$((32 * $(WORLDS))) cargo test --release --locked --test it -- $(or $(ONLY),joint_worlds)

fuzz: ## Gives mutated documents to everything between the text and the plan: make fuzz SECONDS=3600
	@FUZZ_SECONDS='$(SECONDS)' tests/fuzz.sh

soak: ## Repeats the fault tests: make soak N=50 SEED=7
	@SOAK_ROUNDS='$(N)' SOAK_SEED='$(SEED)' tests/soak.sh

soak-ha: ## Injects faults during changes to a cluster; resumes where it stopped: PAIRS=4 ONLY=flags/hang TABLE=1
	@SOAK_SEED='$(SEED)' CLUSTER='$(CLUSTER)' PAIRS='$(PAIRS)' ONLY='$(ONLY)' TABLE='$(TABLE)' ROWS='$(ROWS)' tests/soak-ha.sh

soak-pods: ## Kills the operator's pods at random under clusters that come and go: make soak-pods KILLS=50 SEED=7
	@SOAK_KILLS='$(KILLS)' SOAK_SEED='$(SEED)' tests/soak-pods.sh

conformance: ## Kubernetes' own conformance tests on five real nodes, with a table: FOCUS=sig-network PROCS=6 MINUTES=600 KEEP=1
	@FOCUS='$(FOCUS)' PROCS='$(PROCS)' MINUTES='$(MINUTES)' KEEP='$(KEEP)' tests/conformance.sh

lab: ## Builds the lab's command
	@cargo build --quiet --locked --package lab

lab-up: lab ## Brings up a lab of real nodes: make lab-up NODES=3
	@$(LAB) up --name '$(NAME)' --nodes '$(NODES)'

lab-status: lab ## Shows the labs, their nodes and their images
	@$(LAB) status

lab-ssh: lab ## Logs in to a node: make lab-ssh NODE=n1
	@$(LAB) ssh --name '$(NAME)' '$(NODE)'

lab-down: lab ## Takes the lab down
	@$(LAB) down --name '$(NAME)'
