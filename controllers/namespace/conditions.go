package namespace

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/controllers/served"
)

// findings are what one pass saw of a namespace's content.
type findings struct {
	left       int // objects that the caches show
	unseen     int // objects that only the server showed
	remote     int // objects, among those left, that another server keeps: no cache tells when they go
	byResource map[schema.GroupResource]int
	finalizers map[string]int
	discovery  error
	failed     []error
	unreached  []error // by another server
}

func (f *findings) count(r served.Resource, objects []client.Object) {
	if f.byResource == nil {
		f.byResource, f.finalizers = map[schema.GroupResource]int{}, map[string]int{}
	}
	f.left += len(objects)
	f.byResource[r.GroupResource()] += len(objects)
	for _, o := range objects {
		for _, name := range o.GetFinalizers() {
			f.finalizers[name]++
		}
	}
}

// conditions are what kubectl get namespace -o yaml shows of a deletion under way. Each is listed by its reason and text when all is well.
var conditions = []struct {
	kind         corev1.NamespaceConditionType
	reason, text string
}{
	{corev1.NamespaceDeletionDiscoveryFailure, "ResourcesDiscovered", "All resources successfully discovered"},
	{corev1.NamespaceDeletionGVParsingFailure, "ParsedGroupVersions", "All legacy kube types successfully parsed"},
	{corev1.NamespaceDeletionContentFailure, "ContentDeleted", "All content successfully deleted, may be waiting on finalization"},
	{corev1.NamespaceContentRemaining, "ContentRemoved", "All content successfully removed"},
	{corev1.NamespaceFinalizersRemaining, "ContentHasNoFinalizers", "All content-preserving finalizers finished"},
}

// problems maps a condition to its reason and text when it is true.
func (f *findings) problems() map[corev1.NamespaceConditionType][2]string {
	out := map[corev1.NamespaceConditionType][2]string{}
	if f.discovery != nil {
		out[corev1.NamespaceDeletionDiscoveryFailure] = [2]string{"DiscoveryFailed",
			fmt.Sprintf("Discovery failed for some groups, %d failing: %v", failing(f.discovery), f.discovery)}
	}
	if failed := slices.Concat(f.failed, f.unreached); len(failed) > 0 {
		var texts []string
		for _, err := range failed {
			texts = append(texts, err.Error())
		}
		slices.Sort(texts)
		out[corev1.NamespaceDeletionContentFailure] = [2]string{"ContentDeletionFailed",
			fmt.Sprintf("Failed to delete all resource types, %d remaining: %s", len(texts), strings.Join(texts, ", "))}
	}
	if len(f.byResource) > 0 {
		var texts []string
		for r, n := range f.byResource {
			texts = append(texts, fmt.Sprintf("%s.%s has %d resource instances", r.Resource, r.Group, n))
		}
		slices.Sort(texts)
		out[corev1.NamespaceContentRemaining] = [2]string{"SomeResourcesRemain", "Some resources are remaining: " + strings.Join(texts, ", ")}
	}
	if len(f.finalizers) > 0 {
		var texts []string
		for _, name := range slices.Sorted(maps.Keys(f.finalizers)) {
			texts = append(texts, fmt.Sprintf("%s in %d resource instances", name, f.finalizers[name]))
		}
		out[corev1.NamespaceFinalizersRemaining] = [2]string{"SomeFinalizersRemain",
			"Some content in the namespace has finalizers remaining: " + strings.Join(texts, ", ")}
	}
	return out
}

// failing counts the group versions that an error of discovery is about.
func failing(err error) int {
	var groups *discovery.ErrGroupDiscoveryFailed
	if errors.As(err, &groups) {
		return len(groups.Groups)
	}
	return 1
}

func setConditions(s *corev1.NamespaceStatus, f findings, now time.Time) {
	problems := f.problems()
	for _, k := range conditions {
		c := corev1.NamespaceCondition{Type: k.kind, Status: corev1.ConditionFalse, Reason: k.reason, Message: k.text, LastTransitionTime: metav1.NewTime(now)}
		if p, bad := problems[k.kind]; bad {
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, p[0], p[1]
		}
		i := slices.IndexFunc(s.Conditions, func(old corev1.NamespaceCondition) bool { return old.Type == k.kind })
		if i < 0 {
			s.Conditions = append(s.Conditions, c)
			continue
		}
		if s.Conditions[i].Status == c.Status {
			c.LastTransitionTime = s.Conditions[i].LastTransitionTime
		}
		s.Conditions[i] = c
	}
}
