package policy

import (
	"fmt"
	"math"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/yare-project/yare/api/scheduling/v1alpha1"
	"github.com/yare-project/yare/internal/nodeexpr"
	"github.com/yare-project/yare/scheduler/framework"
)

// compiled is one policy, ready to be asked.
type compiled struct {
	name       string
	pods       labels.Selector
	namespaces labels.Selector // nil selects all
	schedulers []string        // empty selects all
	filters    []filter
	scores     []score
	metrics    bool // an expression reads numbers
}

type filter struct {
	*nodeexpr.Expression
	refusal *framework.Status
	failure v1alpha1.FailurePolicy
	policy  string
}

type score struct {
	*nodeexpr.Expression
	weight      int64
	worst, best float64
	failure     v1alpha1.FailurePolicy
	policy      string
}

func compile(p *v1alpha1.SchedulingPolicy) (*compiled, error) {
	out := &compiled{name: p.Name, schedulers: p.Spec.SchedulerNames, pods: labels.Everything()}
	var err error
	if p.Spec.PodSelector != nil {
		if out.pods, err = metav1.LabelSelectorAsSelector(p.Spec.PodSelector); err != nil {
			return nil, fmt.Errorf("spec.podSelector: %w", err)
		}
	}
	if p.Spec.NamespaceSelector != nil {
		if out.namespaces, err = metav1.LabelSelectorAsSelector(p.Spec.NamespaceSelector); err != nil {
			return nil, fmt.Errorf("spec.namespaceSelector: %w", err)
		}
	}
	c, err := nodeexpr.NewCompiler(true)
	if err != nil {
		return nil, err
	}
	for i, v := range p.Spec.Variables {
		if _, err := c.Variable(v.Name, v.Expression); err != nil {
			return nil, fmt.Errorf("spec.variables[%d].expression: %w", i, err)
		}
	}
	for i := range p.Spec.Filters {
		if err := out.addFilter(c, &p.Spec.Filters[i]); err != nil {
			return nil, fmt.Errorf("spec.filters[%d].expression: %w", i, err)
		}
	}
	for i := range p.Spec.Scores {
		if err := out.addScore(c, &p.Spec.Scores[i]); err != nil {
			return nil, fmt.Errorf("spec.scores[%d].expression: %w", i, err)
		}
	}
	return out, nil
}

func (p *compiled) addFilter(c *nodeexpr.Compiler, in *v1alpha1.PolicyFilter) error {
	e, err := c.Compile(in.Expression, nodeexpr.Bool)
	if err != nil {
		return err
	}
	message := in.Message
	if message == "" {
		message = strings.Join(strings.Fields(in.Expression), " ") + " is false"
	}
	p.metrics = p.metrics || e.Metrics
	p.filters = append(p.filters, filter{e, refuse(p.name, message, e.Requested), in.FailurePolicy, p.name})
	return nil
}

func (p *compiled) addScore(c *nodeexpr.Compiler, in *v1alpha1.PolicyScore) error {
	e, err := c.Compile(in.Expression, nodeexpr.Number)
	if err != nil {
		return err
	}
	s := score{Expression: e, weight: int64(max(in.Weight, 1)), best: framework.MaxScore, failure: in.FailurePolicy, policy: p.name}
	if in.Worst != nil {
		s.worst = in.Worst.AsApproximateFloat64()
	}
	if in.Best != nil {
		s.best = in.Best.AsApproximateFloat64()
	}
	p.metrics = p.metrics || e.Metrics
	p.scores = append(p.scores, s)
	return nil
}

// refuse words a refusal. Where pods change what the expression reads, removing some may help.
func refuse(policy, message string, pods bool) *framework.Status {
	code := framework.Unresolvable
	if pods {
		code = framework.Unschedulable
	}
	return framework.Refuse(code, Name, fmt.Sprintf("node(s) refused by SchedulingPolicy %q: %s", policy, message))
}

// points turns the expression's number into 0..100, times the weight.
func (s *score) points(x float64) int64 {
	y := (x - s.worst) / (s.best - s.worst) * framework.MaxScore
	if math.IsNaN(y) { // worst is best, which the API refuses
		return 0
	}
	return s.weight * int64(math.Round(min(max(y, 0), framework.MaxScore)))
}

// selects tells whether the policy concerns the pod.
func (p *compiled) selects(pod *framework.Pod, scheduler string, nodes *framework.Nodes) bool {
	if len(p.schedulers) > 0 && !slices.Contains(p.schedulers, scheduler) {
		return false
	}
	if !p.pods.Matches(labels.Set(pod.Object.Labels)) {
		return false
	}
	return p.namespaces == nil || p.namespaces.Matches(nodes.NamespaceLabels(pod.Object.Namespace))
}
