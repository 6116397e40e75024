package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
)

const (
	// callTimeout bounds one call to a driver, as the kubelet does.
	callTimeout = 45 * time.Second
	// slowAfter is when a call is told of: a driver that is well has answered by then.
	slowAfter = 3 * time.Second
	// grace is what a driver that knows its deadline has beyond it to say so.
	grace = time.Second

	prepareCall, undoCall = "NodePrepareResources", "NodeUnprepareResources"
)

// call is one that a driver has not answered.
type call struct {
	driver, method string
	claims         []*claim
	since          time.Time
	slow           bool
}

func wire(list []*claim) []*drav1.Claim {
	out := make([]*drav1.Claim, len(list))
	for i, c := range list {
		out[i] = &drav1.Claim{Namespace: c.Namespace, Uid: string(c.UID), Name: c.Name}
	}
	return out
}

func (m *Manager) prepareWith(ctx context.Context, name string, list []*claim) map[*claim]error {
	answer := &drav1.NodePrepareResourcesResponse{}
	err := m.invoke(ctx, &call{driver: name, method: prepareCall, claims: list}, &drav1.NodePrepareResourcesRequest{Claims: wire(list)}, answer)
	failed := failures(prepareCall, name, list, answer.GetClaims(), err)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range list {
		if failed[c] != nil {
			continue
		}
		c.Devices[name] = nil
		for _, d := range answer.Claims[string(c.UID)].GetDevices() {
			c.Devices[name] = append(c.Devices[name], preparation{Pool: d.PoolName, Device: d.DeviceName, Requests: d.RequestNames, CDI: d.CdiDeviceIds, Share: d.ShareId})
		}
	}
	return failed
}

func (m *Manager) undoWith(ctx context.Context, name string, list []*claim) map[*claim]error {
	answer := &drav1.NodeUnprepareResourcesResponse{}
	err := m.invoke(ctx, &call{driver: name, method: undoCall, claims: list}, &drav1.NodeUnprepareResourcesRequest{Claims: wire(list)}, answer)
	return failures(undoCall, name, list, answer.GetClaims(), err)
}

// failures are the claims that a driver failed for: all if the call failed, else those that it says so of, or nothing.
func failures[A interface{ GetError() string }](method, driver string, list []*claim, answers map[string]A, err error) map[*claim]error {
	failed := map[*claim]error{}
	for _, c := range list {
		got, ok := answers[string(c.UID)]
		switch {
		case err != nil:
			failed[c] = err
		case !ok:
			failed[c] = fmt.Errorf("%s: driver %s says nothing of ResourceClaim %s", method, driver, c.Name)
		case got.GetError() != "":
			failed[c] = fmt.Errorf("%s failed for ResourceClaim %s: %s", method, c.Name, got.GetError())
		}
	}
	return failed
}

// invoke makes a call to a driver, and lets pods know that wait for it once it takes long.
func (m *Manager) invoke(ctx context.Context, c *call, request, answer proto.Message) error {
	d, err := m.driver(c.driver)
	if err != nil {
		return err
	}
	ctx, forget := context.WithTimeout(ctx, m.cfg.Timeout+grace) // the driver is told so; what ends the call is silence
	defer forget()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m.begin(c)
	defer m.finish(c)
	go m.watchCall(ctx, c, cancel)
	method := d.prepare
	if c.method == undoCall {
		method = d.unprepare
	}
	err = d.conn.Invoke(ctx, method, request, answer)
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), errSilent):
		return fmt.Errorf("%s: driver %s did not answer within %s", c.method, c.driver, m.cfg.Timeout)
	}
	return fmt.Errorf("%s: driver %s: %s", c.method, c.driver, status.Convert(err).Message())
}

var errSilent = errors.New("no answer in time")

func (m *Manager) begin(c *call) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.since = m.cfg.Clock.Now()
	m.calls[c] = true
}

// watchCall has pods told of a call that takes long, and ends one that takes too long. It returns when the call has ended.
func (m *Manager) watchCall(ctx context.Context, c *call, end context.CancelCauseFunc) {
	slow, late := m.cfg.Clock.NewTimer(slowAfter), m.cfg.Clock.NewTimer(m.cfg.Timeout)
	defer slow.Stop()
	defer late.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-late.C():
			end(errSilent)
			return
		case <-slow.C():
			m.mu.Lock()
			c.slow = m.calls[c]
			pods := podsOf(c)
			m.mu.Unlock()
			m.cfg.Changed(pods)
		}
	}
}

func (m *Manager) finish(c *call) {
	m.mu.Lock()
	delete(m.calls, c)
	pods, slow := podsOf(c), c.slow
	m.mu.Unlock()
	if slow {
		m.cfg.Changed(pods)
	}
}

// podsOf lists the pods that a call is for. m.mu is held.
func podsOf(c *call) []types.UID {
	var out []types.UID
	for _, claim := range c.claims {
		for _, p := range claim.Pods {
			if !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

// Waits says which driver a pod waits for, and since when, if one takes long to answer; else it is empty. It stays the same for as long as the pod waits for the same.
func (m *Manager) Waits(pod *corev1.Pod) string {
	if !wants(pod) {
		return ""
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	for c := range m.calls {
		if c.slow && slices.Contains(podsOf(c), pod.UID) {
			all = append(all, m.tell(c))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

func (m *Manager) tell(c *call) string {
	names := make([]string, len(c.claims))
	for i, claim := range c.claims {
		names[i] = claim.Name
	}
	noun := "ResourceClaim"
	if len(names) > 1 {
		noun = "ResourceClaims"
	}
	return fmt.Sprintf("DRA driver %s has not answered %s for %s %s, which it was asked at %s; the call ends after %s", c.driver, c.method, noun, strings.Join(names, ", "),
		c.since.UTC().Format(time.RFC3339), m.cfg.Timeout)
}
