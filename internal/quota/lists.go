package quota

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Names are the names of a list, in order.
func Names(l corev1.ResourceList) []corev1.ResourceName {
	out := make([]corev1.ResourceName, 0, len(l))
	for n := range l {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// Add is the sum of two lists.
func Add(a, b corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for n, q := range a {
		out[n] = q.DeepCopy()
	}
	AddTo(out, b)
	return out
}

// AddTo adds b to sum.
func AddTo(sum, b corev1.ResourceList) {
	for n, q := range b {
		total, ok := sum[n]
		if !ok {
			sum[n] = q.DeepCopy()
			continue
		}
		total = total.DeepCopy()
		total.Add(q)
		sum[n] = total
	}
}

// Increase is by how much each amount of now is above that of before: what became less is left out.
func Increase(now, before corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for n, q := range now {
		more := q.DeepCopy()
		more.Sub(before[n])
		if more.Sign() > 0 {
			out[n] = more
		}
	}
	return out
}

// Mask keeps the named amounts, and of these what is not zero.
func Mask(l corev1.ResourceList, names []corev1.ResourceName) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, n := range names {
		if q, ok := l[n]; ok && !q.IsZero() {
			out[n] = q.DeepCopy()
		}
	}
	return out
}

// Pick is a list of the named amounts, zero where there is none.
func Pick(l corev1.ResourceList, names []corev1.ResourceName) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, n := range names {
		q, ok := l[n]
		if !ok {
			q = resource.Quantity{Format: resource.DecimalSI}
		}
		out[n] = q.DeepCopy()
	}
	return out
}

// Equal tells whether two lists have the same names and amounts.
func Equal(a, b corev1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for n, q := range a {
		other, ok := b[n]
		if !ok || q.Cmp(other) != 0 {
			return false
		}
	}
	return true
}

// Exceeded are the names whose used and requested amounts together are above hard, in order.
func Exceeded(requested, used, hard corev1.ResourceList) []corev1.ResourceName {
	return slices.DeleteFunc(Names(requested), func(n corev1.ResourceName) bool {
		limit, bounded := hard[n]
		total := used[n].DeepCopy()
		total.Add(requested[n])
		return !bounded || total.Cmp(limit) <= 0
	})
}

// Text is a list as messages show it: "cpu=1,memory=2Gi".
func Text(l corev1.ResourceList) string {
	var out []string
	for _, n := range Names(l) {
		q := l[n]
		out = append(out, string(n)+"="+q.String())
	}
	return strings.Join(out, ",")
}
