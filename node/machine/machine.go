// Package machine is the pod state machine: one pure function, Decide, from what a pod should be and what is, to what to do next.
//
// Decide reads no clock, does no I/O and changes nothing: the same Input gives the same Plan. The caller (package node) keeps one Memory per
// pod, carries out the plan's actions each on its own, takes the results into Memory and Observed, and decides again; and it does so
// at Plan.Wake at the latest. An action that is under way is not planned twice. Deciding twice without news changes nothing.
//
// The rules (order of init containers and sidecars, restart policies and back-off, order and grace of termination) are those that the
// Kubernetes documentation of the pod life cycle gives.
package machine

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Op is a kind of action.
type Op string

// The actions that a plan can hold.
const (
	SetUpVolumes    Op = "SetUpVolumes"
	CreateSandbox   Op = "CreateSandbox"
	StartContainer  Op = "StartContainer"
	KillContainer   Op = "KillContainer"
	UpdateContainer Op = "UpdateContainer"
	RemoveContainer Op = "RemoveContainer"
	StopSandbox     Op = "StopSandbox"
	RemoveSandbox   Op = "RemoveSandbox"
	// Release gives back what only a living pod needs: volumes and cgroups. Containers stay, for their logs.
	Release Op = "Release"
	// TearDown removes everything of the pod from the machine.
	TearDown Op = "TearDown"
	// DeletePod ends the deletion at the API, once the last status is there.
	DeletePod Op = "DeletePod"
)

// Action is one thing to do. Which fields matter depends on Op.
type Action struct {
	Op          Op
	Container   string // name
	ContainerID string
	SandboxID   string
	Attempt     int // of the container or sandbox to make
	Grace       time.Duration
	Reason      string // why a container is killed
	Message     string // the same for people; empty for the usual
	Backoff     Backoff
	Issued      time.Time // when a kill was decided, so that a later decision knows when it is over
}

// The reasons to kill a container.
const (
	KillPod          = "Pod"
	KillLiveness     = "LivenessProbe"
	KillStartup      = "StartupProbe"
	KillChanged      = "DefinitionChanged"
	KillSandboxGone  = "SandboxGone"
	KillUnknown      = "Unknown"
	KillResize       = "Resize"
	KillRestartRules = "RestartAllContainers"
)

// Key names what the action is about: two actions with one key must not run at once.
func (a Action) Key() string {
	switch a.Op {
	case StartContainer:
		return string(a.Op) + "/" + a.Container
	case KillContainer, UpdateContainer, RemoveContainer:
		return string(a.Op) + "/" + a.ContainerID
	case StopSandbox, RemoveSandbox:
		return string(a.Op) + "/" + a.SandboxID
	}
	return string(a.Op)
}

// Waiting is why a container does not run: a reason for machines and a message for people.
type Waiting struct{ Reason, Message string }

// Verdict is a final decision against a pod: its phase becomes Failed with this reason.
type Verdict struct{ Reason, Message string }

// Probes is what a container's probes say so far. Pending means: no answer yet.
type Probes struct{ Startup, Liveness, Readiness Result }

// Result is the answer of a probe.
type Result int

// Pending is no answer yet.
const (
	Pending Result = iota
	Success
	Failure
)

// Retry is the memory of something that failed and is tried again.
type Retry struct {
	Count   int
	At      time.Time
	Message string
	Reason  string // a word for it, where there is one
}

// ContainerMemory is what is remembered of a container by name.
type ContainerMemory struct {
	Backoff Backoff
	// Failure is set while the last start did not work; Waiting says why.
	Failure Retry
	Waiting Waiting
	// Restarts is the restart count of the newest container that ever was, or -1.
	Restarts int
}

// Memory is what is remembered of one pod between decisions. The shell changes it; Decide only reads it.
type Memory struct {
	Verdict *Verdict
	// VolumesReady says that every volume is set up; VolumesStale that their content should be renewed.
	VolumesReady, VolumesStale bool
	VolumesRefresh             time.Time // when content must be renewed (tokens); zero: never
	Volumes                    Retry
	Sandbox                    Retry
	Containers                 map[string]*ContainerMemory
	InFlight                   map[string]Action
	Probes                     map[string]Probes // by container id
	Hooks                      map[string]bool   // container ids whose postStart hook runs
	TerminatingSince           time.Time         // zero: not yet
	KillFailures               map[string]Retry  // by container or sandbox id
	Released, TornDown         bool
	Cleanup, Delete            Retry
	Deleted                    bool            // the API confirmed the deletion
	Stopped                    map[string]bool // sandboxes that were stopped on purpose
	Resize                     map[string]Retry
	Resetting                  bool // RestartAllContainers is under way
}

// NewMemory returns the memory of a pod just met.
func NewMemory() *Memory {
	return &Memory{Containers: map[string]*ContainerMemory{}, InFlight: map[string]Action{}, Probes: map[string]Probes{},
		Hooks: map[string]bool{}, KillFailures: map[string]Retry{}, Stopped: map[string]bool{}, Resize: map[string]Retry{}}
}

// Of returns the memory of a container, making it on first use.
func (m *Memory) Of(name string) *ContainerMemory {
	c := m.Containers[name]
	if c == nil {
		c = &ContainerMemory{Restarts: -1}
		m.Containers[name] = c
	}
	return c
}

// Input is all that a decision rests on.
type Input struct {
	Pod      *corev1.Pod
	Gone     bool // the API has it no longer
	Observed *Observed
	Memory   *Memory
	Now      time.Time
	// StatusWritten says that the API has the newest status.
	StatusWritten bool
	// Resources answers whether a running container has the resources that its spec asks for; nil: always.
	ResourcesMatch func(c *corev1.Container, have *Container) bool
}

// Plan is what to do next.
type Plan struct {
	Actions []Action
	// Wake is when to decide again even without news; zero: only on news.
	Wake time.Time
	// Verdict is a final decision that this pass reached.
	Verdict *Verdict
	// Waiting says for each container that waits for its turn why, where there is more to say than "creating".
	Waiting map[string]Waiting
	// Terminal says that no container will run again: the phase may become Succeeded or Failed.
	Terminal bool
	// Terminating says that containers are being stopped for good: starts under way should be cancelled.
	Terminating bool
	// Gone says that nothing is left to do or to know about the pod.
	Gone bool
}
