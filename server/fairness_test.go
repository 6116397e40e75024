package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/server"
)

// as makes an HTTP client that acts as a user, and the server's address.
func (q *quick) as(name string, groups ...string) (*http.Client, string) {
	q.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", q.config)
	if err != nil {
		q.Fatal(err)
	}
	if name != "" {
		cfg.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: append(groups, "system:authenticated")}
	}
	c, err := rest.HTTPClientFor(cfg)
	if err != nil {
		q.Fatal(err)
	}
	return c, cfg.Host
}

// counter sums a metric over all its rows that have the labels.
func (q *quick) counter(name string, labels ...string) float64 {
	q.Helper()
	c, host := q.as("")
	resp, err := c.Get(host + "/metrics")
	if err != nil {
		q.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		q.Fatal(err)
	}
	sum := 0.0
rows:
	for _, line := range strings.Split(string(text), "\n") {
		rest, ok := strings.CutPrefix(line, name+"{")
		if !ok {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue rows
			}
		}
		v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			q.Fatal(err)
		}
		sum += v
	}
	return sum
}

// Five hundred lists of one user at a time leave no seat of their level free; each of a node's heartbeats is let in at once.
func TestAFloodDoesNotDelayAHeartbeat(t *testing.T) {
	q := startQuick(t, func(c *server.Config) { c.Load.MaxRequests, c.Load.MaxMutating = 12, 12 })
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	q.until("the node's lease", problem(func() string {
		_, err := q.api.CoordinationV1().Leases("kube-node-lease").Get(ctx, "dinghy", metav1.GetOptions{})
		return text(err)
	}))
	role := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "flood"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "flood"}}}
	if _, err := q.api.RbacV1().ClusterRoleBindings().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	flooding, stop := context.WithCancel(ctx)
	var flood sync.WaitGroup
	defer flood.Wait()
	defer stop()
	var listed, refused atomic.Int64
	c, host := q.as("flood")
	for range 500 {
		flood.Go(func() {
			for flooding.Err() == nil {
				req, _ := http.NewRequestWithContext(flooding, "GET", host+"/api/v1/configmaps", nil)
				resp, err := c.Do(req)
				if err != nil {
					continue
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				switch resp.StatusCode {
				case http.StatusOK:
					listed.Add(1)
				case http.StatusTooManyRequests:
					refused.Add(1)
				}
			}
		})
	}
	q.until("the flood to be refused", problem(func() string {
		if refused.Load() == 0 || listed.Load() == 0 {
			return fmt.Sprintf("%d listed, %d refused", listed.Load(), refused.Load())
		}
		return ""
	}))
	level := `priority_level="node-high"`
	before := q.counter("apiserver_flowcontrol_request_wait_duration_seconds_bucket", level, `execute="true"`, `le="0.005"`)
	node, _ := q.as("system:node:dinghy", "system:nodes")
	const beats = 50
	for i := range beats {
		body := fmt.Sprintf(`{"metadata":{"annotations":{"beat":"%d"}}}`, i)
		req, _ := http.NewRequestWithContext(ctx, "PATCH", host+"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/dinghy", strings.NewReader(body))
		req.Header.Set("Content-Type", "application/merge-patch+json")
		resp, err := node.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("heartbeat %d was answered %s: %s", i, resp.Status, answer)
		}
	}
	if at := q.counter("apiserver_flowcontrol_request_wait_duration_seconds_bucket", level, `execute="true"`, `le="0.005"`) - before; at < beats {
		t.Errorf("only %v of %d heartbeats were let in within 5 ms", at, beats)
	}
	if n := q.counter("apiserver_flowcontrol_rejected_requests_total", level); n != 0 {
		t.Errorf("%v heartbeats were refused", n)
	}
	if n := q.counter("apiserver_flowcontrol_rejected_requests_total", `priority_level="global-default"`, `flow_schema="global-default"`); n == 0 {
		t.Error("the flood was not counted")
	}
}

// problem turns what is wrong into an error; nothing is nil.
func problem(of func() string) func(context.Context) error {
	return func(context.Context) error {
		if text := of(); text != "" {
			return errors.New(text)
		}
		return nil
	}
}

func text(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

// The objects by which the server is shared are there, keep themselves, and take effect.
func TestFlowControlObjects(t *testing.T) {
	q := startQuick(t)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	schemas, levels := q.api.FlowcontrolV1().FlowSchemas(), q.api.FlowcontrolV1().PriorityLevelConfigurations()
	count := func() string {
		s, errS := schemas.List(ctx, metav1.ListOptions{})
		l, errL := levels.List(ctx, metav1.ListOptions{})
		if errS != nil || errL != nil || len(s.Items) != 11 || len(l.Items) != 8 {
			return fmt.Sprintf("%d schemas, %d levels, %v, %v", len(s.Items), len(l.Items), errS, errL)
		}
		return ""
	}
	if missing := count(); missing != "" { // at once: they are there before the server is ready
		t.Fatal(missing)
	}
	for _, name := range []string{"exempt", "probes"} {
		if err := schemas.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := levels.Delete(ctx, "workload-low", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	q.until("the deleted objects again", problem(count))
	_, err := levels.Patch(ctx, "catch-all", types.MergePatchType, []byte(`{"spec":{"limited":{"nominalConcurrencyShares":500}}}`), metav1.PatchOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec of 'catch-all' must equal the fixed value") {
		t.Errorf("a mandatory object could be changed: %v", err)
	}
	exempt, err := levels.Patch(ctx, "exempt", types.MergePatchType, []byte(`{"spec":{"exempt":{"nominalConcurrencyShares":10}}}`), metav1.PatchOptions{})
	if err != nil || *exempt.Spec.Exempt.NominalConcurrencyShares != 10 {
		t.Errorf("the exempt level's shares could not be changed: %v", err)
	}
	mine := &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: flowcontrolv1.FlowSchemaSpec{MatchingPrecedence: 50,
		PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "mine"},
		Rules: []flowcontrolv1.PolicyRulesWithSubjects{{Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: "jane"}}},
			NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}}}}}}
	if mine, err = schemas.Create(ctx, mine, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	condition := func(want string) func() string {
		return func() string {
			have, err := schemas.Get(ctx, "mine", metav1.GetOptions{})
			if err != nil || len(have.Status.Conditions) != 1 || string(have.Status.Conditions[0].Status) != want {
				return fmt.Sprint(have.Status, err)
			}
			return ""
		}
	}
	q.until("the schema to say that its level is missing", problem(condition("True")))
	level := &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
		Type: flowcontrolv1.PriorityLevelEnablementLimited, Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{NominalConcurrencyShares: ptr.To[int32](0),
			BorrowingLimitPercent: ptr.To[int32](0), LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject}}}}
	if level, err = levels.Create(ctx, level, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	q.until("the schema to say that its level is there", problem(condition("False")))
	jane, host := q.as("jane")
	q.until("a level without seats to refuse", problem(func() string {
		resp, err := jane.Get(host + "/version")
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		h := resp.Header
		if resp.StatusCode != 429 || h.Get("Retry-After") == "" || h.Get("X-Kubernetes-PF-FlowSchema-UID") != string(mine.UID) || h.Get("X-Kubernetes-PF-PriorityLevel-UID") != string(level.UID) {
			return fmt.Sprint(resp.Status, h)
		}
		return ""
	}))
	admin, _ := q.as("")
	for _, table := range []string{"dump_priority_levels", "dump_queues", "dump_requests?includeRequestDetails=1"} {
		resp, err := admin.Get(host + "/debug/api_priority_and_fairness/" + table)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 200 || !strings.HasPrefix(string(body), "PriorityLevelName,") {
			t.Errorf("%s: %s %s", table, resp.Status, body)
		}
	}
}

// Told to stop, the server says that it is not ready and goes on serving for the delay.
func TestShutdownDelay(t *testing.T) {
	q := startQuick(t, func(c *server.Config) {
		c.Load.ShutdownDelay = time.Second
		c.Log = slog.New(slog.DiscardHandler) // each failed check is told there
	})
	c, host := q.as("")
	get := func(path string) int {
		resp, err := c.Get(host + path)
		if err != nil {
			return 0
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if code := get("/readyz"); code != 200 {
		t.Fatal(code)
	}
	q.stop()
	unready := 0
	for tick := time.Tick(20 * time.Millisecond); ; <-tick { // until connections are refused
		ready, served := get("/readyz"), get("/api/v1/namespaces/default")
		if ready == 0 || served == 0 {
			break
		}
		if ready == 500 {
			unready++
		}
		if served != 200 {
			t.Errorf("while it took its leave, the server answered %d", served)
		}
	}
	if unready == 0 {
		t.Error("the server was ready to its end")
	}
}

func TestWithoutFairness(t *testing.T) {
	q := startQuick(t, func(c *server.Config) { c.Load.WithoutFairness = true })
	schemas, err := q.api.FlowcontrolV1().FlowSchemas().List(context.Background(), metav1.ListOptions{})
	if err != nil || len(schemas.Items) != 0 {
		t.Errorf("%d schemas, %v", len(schemas.Items), err)
	}
	c, host := q.as("jane")
	resp, err := c.Get(host + "/version")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 || resp.Header.Get("X-Kubernetes-PF-FlowSchema-UID") != "" {
		t.Error(resp.Status, resp.Header)
	}
}
