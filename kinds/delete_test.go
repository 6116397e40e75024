package kinds_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/yare-project/yare/kinds"
)

// returned are the resources whose objects Kubernetes 1.36 answers a delete with; it answers with a Status for the others. Clients that print or
// decode what they get rely on it.
var returned = []string{
	"csidrivers.storage.k8s.io", "csinodes.storage.k8s.io", "deviceclasses.resource.k8s.io", "namespaces", "persistentvolumeclaims", "persistentvolumes", "pods",
	"podtemplates", "resourceclaims.resource.k8s.io", "resourceclaimtemplates.resource.k8s.io", "resourcequotas", "resourceslices.resource.k8s.io", "serviceaccounts",
	"services", "storageclasses.storage.k8s.io", "volumeattachments.storage.k8s.io", "volumeattributesclasses.storage.k8s.io",
}

func TestAnswersToDelete(t *testing.T) {
	var got []string
	for _, g := range kinds.Groups() {
		for _, k := range g.Kinds {
			if k.ReturnDeleted {
				got = append(got, k.Resource().String())
			}
		}
	}
	slices.Sort(got)
	if d := cmp.Diff(returned, got); d != "" {
		t.Errorf("resources that a delete returns (-Kubernetes +here):\n%s", d)
	}
}
