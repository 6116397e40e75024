package deployment

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/yare-project/yare/controllers/owned"
)

// Annotations that kubectl and this loop read.
const (
	revisionKey     = "deployment.kubernetes.io/revision"
	historyKey      = "deployment.kubernetes.io/revision-history"
	desiredReplicas = "deployment.kubernetes.io/desired-replicas"
	maxReplicas     = "deployment.kubernetes.io/max-replicas"
	hashLabel       = appsv1.DefaultDeploymentUniqueLabelKey
	historyBytes    = 2000 // of the revision history that is kept
)

// ownKeys are not copied between a Deployment and its sets: each has its own.
var ownKeys = map[string]bool{corev1.LastAppliedConfigAnnotation: true, revisionKey: true, historyKey: true, desiredReplicas: true, maxReplicas: true,
	appsv1.DeprecatedRollbackTo: true}

// sameTemplate compares templates but for the hash label.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	strip := func(t *corev1.PodTemplateSpec) corev1.PodTemplateSpec {
		out := *t
		out.Labels = maps.Clone(t.Labels)
		delete(out.Labels, hashLabel)
		return out
	}
	x, y := strip(a), strip(b)
	return equality.Semantic.DeepEqual(&x, &y)
}

// hashOf names a template: the same on every machine and in every release that knows the same fields.
func hashOf(t *corev1.PodTemplateSpec, collisions *int32) string {
	h := fnv.New32a()
	body, err := json.Marshal(t)
	if err != nil {
		body = fmt.Append(nil, err) // a template that came from JSON can be written as JSON
	}
	h.Write(body)
	if collisions != nil {
		fmt.Fprintf(h, "/%d", *collisions)
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
}

func revision(annotations map[string]string) int64 {
	n, err := strconv.ParseInt(annotations[revisionKey], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func annotate(o metav1.Object, key, value string) {
	a := o.GetAnnotations()
	if a[key] == value {
		return
	}
	if a == nil {
		a = map[string]string{}
		o.SetAnnotations(a)
	}
	a[key] = value
}

// revise gives the current set the newest revision and the Deployment's annotations. If there is no current set, it makes one when create is true.
func (v *view) revise(create bool) {
	next := int64(1)
	for _, rs := range v.old {
		next = max(next, revision(rs.Annotations)+1)
	}
	switch {
	case v.current != nil:
		v.copyAnnotations(v.current)
		advance(v.current, next)
		v.current.Spec.MinReadySeconds = v.d.Spec.MinReadySeconds
	case create:
		v.current = v.newSet()
		v.copyAnnotations(v.current)
		advance(v.current, next)
		n := int32(0)
		v.current.Spec.Replicas = &n
		if n = v.newSize(); v.d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
			n = replicas(v.d)
		}
		v.current.Spec.Replicas = &n
		v.noteSize(v.current)
		v.plan.create = v.current
	default:
		return
	}
	v.plan.revision = v.current.Annotations[revisionKey]
}

// advance raises a set's revision to next and remembers the one that it had.
func advance(rs *appsv1.ReplicaSet, next int64) {
	had := revision(rs.Annotations)
	if had >= next {
		return
	}
	annotate(rs, revisionKey, strconv.FormatInt(next, 10))
	if had == 0 {
		return
	}
	history := strconv.FormatInt(had, 10)
	if before := rs.Annotations[historyKey]; before != "" {
		history = before + "," + history
	}
	for len(history) > historyBytes {
		_, history, _ = strings.Cut(history, ",")
	}
	annotate(rs, historyKey, history)
}

func (v *view) copyAnnotations(rs *appsv1.ReplicaSet) {
	for k, value := range v.d.Annotations {
		if !ownKeys[k] {
			annotate(rs, k, value)
		}
	}
}

func (v *view) newSet() *appsv1.ReplicaSet {
	d := v.d
	hash := hashOf(&d.Spec.Template, d.Status.CollisionCount)
	template := *d.Spec.Template.DeepCopy()
	template.Labels = with(template.Labels, hashLabel, hash)
	selector := d.Spec.Selector.DeepCopy()
	selector.MatchLabels = with(selector.MatchLabels, hashLabel, hash)
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: nameFor(d.Name, hash), Labels: maps.Clone(template.Labels),
			OwnerReferences: []metav1.OwnerReference{*owned.Owner(d, kind)}},
		Spec: appsv1.ReplicaSetSpec{MinReadySeconds: d.Spec.MinReadySeconds, Selector: selector, Template: template},
	}
}

// nameFor shortens the Deployment's name where the whole would be longer than an object's name may be.
func nameFor(name, hash string) string {
	const longest = 253
	if over := len(name) + 1 + len(hash) - longest; over > 0 {
		name = name[:len(name)-over]
	}
	return name + "-" + hash
}

func with(m map[string]string, key, value string) map[string]string {
	out := maps.Clone(m)
	if out == nil {
		out = map[string]string{}
	}
	out[key] = value
	return out
}

func metaTime(t time.Time) metav1.Time { return metav1.NewTime(t) }
