package scheduler

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/yare-project/yare/scheduler/explain"
	"github.com/yare-project/yare/scheduler/framework"
)

// Waiting is what the scheduler knows of a pod that has no node yet.
type Waiting struct {
	Profile  string           `json:"profile"`
	Place    string           `json:"place"`             // active, backoff, parked, gated, asking or binding
	Ahead    int              `json:"ahead,omitempty"`   // of an active pod: how many are decided on before it
	First    time.Time        `json:"first"`             // when the scheduler first saw it
	Since    time.Time        `json:"since"`             // when it came where it is
	Attempts int              `json:"attempts"`          // decisions about it so far
	Retry    *time.Time       `json:"retry,omitempty"`   // when it is tried again even if nothing happens
	Plugins  []string         `json:"plugins,omitempty"` // who refused it
	Awaits   []string         `json:"awaits,omitempty"`  // the kinds of change that may let it go
	Message  string           `json:"message,omitempty"` // of the last refusal
	Changes  []explain.Change `json:"changes,omitempty"` // the smallest that would let it go
}

// DebugPath is where Serve tells of waiting pods: DebugPath + NAMESPACE + "/" + NAME.
const DebugPath = "/debug/scheduler/pods/"

// suggest puts the smallest change behind what a refused pod's user is told, and keeps it for who asks later.
func (s *Scheduler) suggest(it *item, c *framework.Cycle, why *framework.Diagnosis, message string) string {
	it.changes = s.explained.Pod(c, why)
	if more := explain.Message(it.changes); more != "" {
		return message + " " + more
	}
	return message
}

// Waiting tells of a pod without a node; ok is false if the scheduler knows of none. It waits until Run answers, or for the end of ctx.
func (s *Scheduler) Waiting(ctx context.Context, namespace, name string) (w Waiting, ok bool, err error) {
	answered := make(chan struct{})
	s.inbox.tell(func(s *Scheduler) {
		defer close(answered)
		pod, exists := s.world.pods.Get(namespace, name)
		if !exists {
			return
		}
		if it := s.queue.items[pod.UID]; it != nil {
			w, ok = s.describe(it), true
		}
	})
	select {
	case <-answered:
		return w, ok, nil
	case <-ctx.Done():
		return Waiting{}, false, ctx.Err()
	}
}

func (s *Scheduler) describe(it *item) Waiting {
	w := Waiting{Profile: it.profile.Name, First: it.first, Since: it.since, Attempts: it.attempts, Plugins: it.plugins, Message: it.said, Changes: it.changes}
	switch it.place {
	case active:
		w.Place = "active"
		for _, o := range s.queue.active.list {
			if o != it && s.queue.active.Less(o.index, it.index) {
				w.Ahead++
			}
		}
	case backoff:
		until := it.until
		w.Place, w.Retry = "backoff", &until
	case parked:
		at := it.since.Add(patience)
		w.Place, w.Retry, w.Awaits = "parked", &at, kindNames(it.awaits)
	case gated:
		w.Place = "gated"
	case asking:
		w.Place = "asking"
	default:
		w.Place = "binding"
	}
	return w
}

// eventNames are the words for kinds of events; a kind without a word is not told.
var eventNames = []struct {
	kind framework.EventKind
	name string
}{
	{framework.NodeAdded, "a node added"}, {framework.NodeRemoved, "a node removed"}, {framework.NodeAllocatable, "what a node has"}, {framework.NodeLabels, "a node's labels"},
	{framework.NodeTaints, "a node's taints or cordon"}, {framework.NodeOther, "a node's annotations"}, {framework.PodAdded, "a pod assigned"}, {framework.PodRemoved, "a pod gone"},
	{framework.PodShrunk, "a pod that asks for less"}, {framework.PodLabels, "a pod's labels"}, {framework.SelfChanged, "the pod itself"}, {framework.VolumeChanged, "a persistent volume"},
	{framework.ClaimChanged, "a claim"}, {framework.StorageClassChanged, "a storage class"}, {framework.CSINodeChanged, "a node's storage drivers"},
	{framework.NamespaceChanged, "a namespace's labels"}, {framework.PolicyChanged, "a scheduling policy"},
	{framework.CapacityChanged, "what storage is left"}, {framework.AttachmentRemoved, "a volume detached"},
	{framework.ResourceClaimChanged, "a claim on devices"}, {framework.DevicesChanged, "what devices there are"},
}

func kindNames(kinds framework.EventKind) []string {
	if kinds == framework.AnyEvent {
		return []string{"any change"}
	}
	var out []string
	for _, e := range eventNames {
		if kinds&e.kind != 0 {
			out = append(out, e.name)
		}
	}
	return out
}

// Serve answers GET DebugPath/NAMESPACE/NAME with a Waiting in JSON. Who may ask is for the caller to have checked.
func (s *Scheduler) Serve(w http.ResponseWriter, r *http.Request) {
	namespace, name, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, DebugPath), "/")
	switch {
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	case !ok || namespace == "" || name == "" || strings.Contains(name, "/"):
		http.Error(w, "want "+DebugPath+"NAMESPACE/NAME", http.StatusNotFound)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	waiting, known, err := s.Waiting(ctx, namespace, name)
	switch {
	case err != nil:
		http.Error(w, "the scheduler does not answer; it may not be the leader or be starting", http.StatusServiceUnavailable)
	case !known:
		http.Error(w, "no pod "+namespace+"/"+name+" waits for a node", http.StatusNotFound)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(waiting)
	}
}
