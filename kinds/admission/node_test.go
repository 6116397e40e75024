package admission_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/fake"
)

var n1 = &user.DefaultInfo{Name: "system:node:n1", Groups: []string{"system:nodes", "system:authenticated"}}

func by(who user.Info, r *kind.AdmissionRequest) *kind.AdmissionRequest {
	r.User = who
	return r
}

func post(sub, name string, body runtime.Object, plural string) *kind.AdmissionRequest {
	return &kind.AdmissionRequest{Operation: admissionv1.Create, Body: body, Ref: ref("", "v1", plural, "ns", name, sub)}
}

func remove(old kind.Object, plural, group string) *kind.AdmissionRequest {
	return &kind.AdmissionRequest{Operation: admissionv1.Delete, Old: old, Ref: ref(group, "v1", plural, old.GetNamespace(), old.GetName(), "")}
}

func request(t *testing.T, commonName string, organizations ...string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: commonName, Organization: organizations}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// TestWhatANodeMayNotDo plays a node agent that somebody took over.
func TestWhatANodeMayNotDo(t *testing.T) {
	mine, foreign := pod("mine", corev1.PodSpec{NodeName: "n1", ServiceAccountName: "default"}), pod("foreign", corev1.PodSpec{NodeName: "n2", ServiceAccountName: "default"})
	mine.UID, foreign.UID = "u-mine", "u-foreign"
	mine.Spec.Volumes = []corev1.Volume{
		{Name: "t", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}, {ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "vault"}}}}}},
		{Name: "csi", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "driver"}}},
		{Name: "disk", VolumeSource: corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}}},
	}
	world := func() *fake.Env {
		env := world()
		env.Put("", "pods", mine)
		env.Put("", "pods", foreign)
		env.Put("", "nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u-n1"}})
		env.Put("", "namespaces", &corev1.Namespace{ObjectMeta: meta("", "kube-node-lease")})
		env.Put(storagev1.GroupName, "csidrivers", &storagev1.CSIDriver{ObjectMeta: meta("", "driver"), Spec: storagev1.CSIDriverSpec{TokenRequests: []storagev1.TokenRequest{{Audience: "storage"}}}})
		env.Put(storagev1.GroupName, "csidrivers", &storagev1.CSIDriver{ObjectMeta: meta("", "ebs.csi.aws.com"), Spec: storagev1.CSIDriverSpec{TokenRequests: []storagev1.TokenRequest{{Audience: "cloud"}}}})
		env.Put(storagev1.GroupName, "csidrivers", &storagev1.CSIDriver{ObjectMeta: meta("", "disk.csi.azure.com"), Spec: storagev1.CSIDriverSpec{TokenRequests: []storagev1.TokenRequest{{Audience: "other cloud"}}}})
		env.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetVerb() == "request-serviceaccounts-token-audience" && a.GetResource() == "granted" {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		})
		return env
	}
	changed := func(p *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod {
		p = p.DeepCopy()
		change(p)
		return p
	}
	node := func(name string, change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}}}
		change(n)
		return n
	}
	same := func(*corev1.Node) {}
	label := func(key string) func(*corev1.Node) { return func(n *corev1.Node) { n.Labels[key] = "x" } }
	mirror := func(change func(*corev1.Pod)) *corev1.Pod {
		p := pod("static-n1", corev1.PodSpec{NodeName: "n1"})
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "u-n1", Controller: ptr.To(true)}}
		change(p)
		return p
	}
	tokenFor := func(kindName, name, uid string, audiences ...string) *authenticationv1.TokenRequest {
		r := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
		if kindName != "" {
			r.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: kindName, Name: name, UID: types.UID(uid)}
		}
		return r
	}
	token := func(body runtime.Object) *kind.AdmissionRequest {
		return post("token", "default", body, "serviceaccounts")
	}
	lease := func(namespace, name string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: meta(namespace, name)}
	}
	claim := func(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: meta("ns", "c")}
		change(c)
		return c
	}
	slice := func(node *string) *resourcev1.ResourceSlice {
		return &resourcev1.ResourceSlice{ObjectMeta: meta("", "s"), Spec: resourcev1.ResourceSliceSpec{NodeName: node}}
	}
	csr := func(signer, name string) *certificatesv1.CertificateSigningRequest {
		return &certificatesv1.CertificateSigningRequest{ObjectMeta: meta("", "r"), Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: signer, Request: request(t, name, "system:nodes")}}
	}
	for name, test := range map[string]struct {
		request *kind.AdmissionRequest
		want    string
	}{
		"registers itself":              {create("nodes", "", node("n1", same)), ""},
		"registers another":             {create("nodes", "", node("n2", same)), `node "n1" is not allowed to modify node "n2"`},
		"with its zone":                 {create("nodes", "", node("n1", label("topology.kubernetes.io/zone"))), ""},
		"with a label of its own":       {create("nodes", "", node("n1", label("example.com/gpu"))), ""},
		"as a control plane":            {create("nodes", "", node("n1", label("node-role.kubernetes.io/control-plane"))), "is not allowed to set the following labels: node-role.kubernetes.io/control-plane"},
		"with a restricted label":       {create("nodes", "", node("n1", label("node-restriction.kubernetes.io/secure"))), "node-restriction.kubernetes.io/secure"},
		"with one below it":             {create("nodes", "", node("n1", label("x.node-restriction.kubernetes.io/secure"))), "is not allowed to set"},
		"reports its status":            {update("nodes", "", "status", node("n1", func(n *corev1.Node) { n.Status.Phase = "x" }), node("n1", same)), ""},
		"reports another's":             {update("nodes", "", "status", node("n2", same), node("n2", same)), "is not allowed to modify node"},
		"takes a taint away":            {update("nodes", "", "", node("n1", same), node("n1", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "x"}} })), "is not allowed to modify taints"},
		"takes a restricted label away": {update("nodes", "", "", node("n1", same), node("n1", label("node-restriction.kubernetes.io/pci"))), "is not allowed to modify labels: node-restriction.kubernetes.io/pci"},
		"changes a role label":          {update("nodes", "", "", node("n1", label("node-role.kubernetes.io/x")), node("n1", same)), "is not allowed to modify labels"},
		"gets an owner":                 {update("nodes", "", "", node("n1", func(n *corev1.Node) { n.OwnerReferences = []metav1.OwnerReference{{Name: "x"}} }), node("n1", same)), "is not allowed to modify ownerReferences"},
		"points to a config":            {update("nodes", "", "", node("n1", func(n *corev1.Node) { n.Spec.ConfigSource = &corev1.NodeConfigSource{} }), node("n1", same)), "configSource"},

		"creates a pod":               {create("pods", "", pod("p", corev1.PodSpec{NodeName: "n1"})), "can only create mirror pods"},
		"mirrors a static pod":        {create("pods", "", mirror(func(*corev1.Pod) {})), ""},
		"mirrors on another node":     {create("pods", "", mirror(func(p *corev1.Pod) { p.Spec.NodeName = "n2" })), "can only create pods with spec.nodeName set to itself"},
		"mirrors without owner":       {create("pods", "", mirror(func(p *corev1.Pod) { p.OwnerReferences = nil })), "owner reference set to itself"},
		"mirrors with another owner":  {create("pods", "", mirror(func(p *corev1.Pod) { p.OwnerReferences[0].Name = "n2" })), "owner reference set to itself"},
		"mirrors with a dead owner":   {create("pods", "", mirror(func(p *corev1.Pod) { p.OwnerReferences[0].UID = "old" })), "UID mismatch"},
		"mirrors as a mere dependent": {create("pods", "", mirror(func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil })), "controller owner reference"},
		"mirrors and blocks deletion": {create("pods", "", mirror(func(p *corev1.Pod) { p.OwnerReferences[0].BlockOwnerDeletion = ptr.To(true) })), "blockOwnerDeletion"},
		"mirrors a config map": {create("pods", "", mirror(func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}}}
		})), "can not create pods that reference configmaps"},
		"mirrors a claim": {create("pods", "", mirror(func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
		})), "persistentvolumeclaims"},
		"edits its pod":        {update("pods", "", "", mine, mine), "can only create and delete mirror pods"},
		"reports on its pod":   {update("pods", "", "status", changed(mine, func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }), mine), ""},
		"reports on another's": {update("pods", "", "status", foreign, foreign), "can only update pod status for pods with spec.nodeName set to itself"},
		"labels its pod":       {update("pods", "", "status", changed(mine, func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} }), mine), "cannot update labels through pod status"},
		"takes a device":       {update("pods", "", "status", changed(mine, func(p *corev1.Pod) { p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu"}} }), mine), "cannot update resource claim"},
		"debugs its pod":       {update("pods", "", "ephemeralcontainers", mine, mine), "unexpected pod subresource"},
		"deletes its pod":      {remove(mine, "pods", ""), ""},
		"deletes another's":    {remove(foreign, "pods", ""), "can only delete pods with spec.nodeName set to itself"},
		"evicts its pod":       {post("eviction", "mine", &policyv1.Eviction{}, "pods"), ""},
		"evicts another's":     {post("eviction", "foreign", &policyv1.Eviction{}, "pods"), "can only evict pods with spec.nodeName set to itself"},
		"binds a pod":          {post("binding", "mine", &corev1.Binding{}, "pods"), "unexpected pod subresource"},

		"token for its pod":            {token(tokenFor("Pod", "mine", "u-mine")), ""},
		"token for an asked audience":  {token(tokenFor("Pod", "mine", "u-mine", "vault")), ""},
		"token for a CSI driver":       {token(tokenFor("Pod", "mine", "u-mine", "storage")), ""},
		"token for a moved driver":     {token(tokenFor("Pod", "mine", "u-mine", "cloud")), ""},
		"token for a driver unused":    {token(tokenFor("Pod", "mine", "u-mine", "other cloud")), `audience "other cloud" not found in pod spec volume`},
		"token for a granted audience": {token(tokenFor("Pod", "mine", "u-mine", "granted")), ""},
		"token for any audience":       {token(tokenFor("Pod", "mine", "u-mine", "bank")), `audience "bank" not found in pod spec volume`},
		"token for two audiences":      {token(tokenFor("Pod", "mine", "u-mine", "vault", "storage")), "node may only request 0 or 1 audiences"},
		"token for another's pod":      {token(tokenFor("Pod", "foreign", "u-foreign")), "pod scheduled on a different node"},
		"token bound to nothing":       {token(tokenFor("", "", "")), "not bound to a pod"},
		"token bound to itself":        {token(tokenFor("Node", "n1", "u-n1")), "not bound to a pod"},
		"token without uid":            {token(tokenFor("Pod", "mine", "")), "without a uid"},
		"token for a pod before":       {token(tokenFor("Pod", "mine", "u-old")), "does not match the UID in record"},
		"token for no pod":             {token(tokenFor("Pod", "gone", "u")), `pods "gone" not found`},

		"its lease":                {create("leases", coordinationv1.GroupName, lease("kube-node-lease", "n1")), ""},
		"another's lease":          {create("leases", coordinationv1.GroupName, lease("kube-node-lease", "n2")), "can only access node lease with the same name"},
		"a lease elsewhere":        {create("leases", coordinationv1.GroupName, lease("ns", "n1")), `can only access leases in the "kube-node-lease" system namespace`},
		"its CSINode":              {create("csinodes", storagev1.GroupName, &storagev1.CSINode{ObjectMeta: meta("", "n1")}), ""},
		"another's CSINode":        {create("csinodes", storagev1.GroupName, &storagev1.CSINode{ObjectMeta: meta("", "n2")}), "can only access CSINode with the same name"},
		"its slice":                {create("resourceslices", resourcev1.GroupName, slice(ptr.To("n1"))), ""},
		"another's slice":          {create("resourceslices", resourcev1.GroupName, slice(ptr.To("n2"))), "can only create ResourceSlice with the same NodeName"},
		"a slice of all":           {create("resourceslices", resourcev1.GroupName, slice(nil)), "can only create ResourceSlice"},
		"deletes another's slice":  {remove(slice(ptr.To("n2")), "resourceslices", resourcev1.GroupName), "can only delete ResourceSlice"},
		"grows a claim":            {update("persistentvolumeclaims", "", "status", claim(func(c *corev1.PersistentVolumeClaim) { c.Status.Capacity = corev1.ResourceList{} }), claim(func(*corev1.PersistentVolumeClaim) {})), ""},
		"labels a claim":           {update("persistentvolumeclaims", "", "status", claim(func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"a": "b"} }), claim(func(*corev1.PersistentVolumeClaim) {})), "is not allowed to update fields other than"},
		"edits a claim":            {update("persistentvolumeclaims", "", "", claim(func(*corev1.PersistentVolumeClaim) {}), claim(func(*corev1.PersistentVolumeClaim) {})), "may only update PVC status"},
		"asks for its certificate": {create("certificatesigningrequests", certificatesv1.GroupName, csr("kubernetes.io/kubelet-serving", "system:node:n1")), ""},
		"asks for another's":       {create("certificatesigningrequests", certificatesv1.GroupName, csr("kubernetes.io/kube-apiserver-client-kubelet", "system:node:n2")), "can only create a node CSR with CN=system:node:n1"},
		"writes an event":          {create("events", "", &corev1.Event{ObjectMeta: meta("ns", "e")}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := admit(world(), by(n1, test.request))
			refused(t, err, test.want)
			if err == nil {
				return
			}
			if other, err := admit(world(), by(&user.DefaultInfo{Name: "ann"}, test.request)); err != nil && test.request.Ref.Resource == "nodes" {
				t.Errorf("refused to others too: %v %v", other, err)
			}
		})
	}
	_, err := admit(world(), by(&user.DefaultInfo{Name: "system:node:", Groups: []string{"system:nodes"}}, create("events", "", &corev1.Event{ObjectMeta: meta("ns", "e")})))
	refused(t, err, "could not determine node from user")
}

func TestCertificateRequests(t *testing.T) {
	var asked []string
	env := world()
	env.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		key := a.GetUser().GetName() + " " + a.GetVerb() + " " + a.GetResource() + " " + a.GetName()
		asked = append(asked, key)
		if slices.Contains([]string{"approver approve signers example.com/a", "approver approve signers other.com/*", "signer sign signers example.com/a"}, key) {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
	csr := func(signer string, change func(*certificatesv1.CertificateSigningRequest)) *certificatesv1.CertificateSigningRequest {
		r := &certificatesv1.CertificateSigningRequest{ObjectMeta: meta("", "r"), Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: signer, Request: request(t, "x")}}
		change(r)
		return r
	}
	same := func(*certificatesv1.CertificateSigningRequest) {}
	approved := func(r *certificatesv1.CertificateSigningRequest) {
		r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue}}
	}
	issued := func(r *certificatesv1.CertificateSigningRequest) { r.Status.Certificate = []byte("x") }
	approval := func(signer string) *kind.AdmissionRequest {
		return update("certificatesigningrequests", certificatesv1.GroupName, "approval", csr(signer, approved), csr(signer, same))
	}
	status := func(change func(*certificatesv1.CertificateSigningRequest)) *kind.AdmissionRequest {
		return update("certificatesigningrequests", certificatesv1.GroupName, "status", csr("example.com/a", change), csr("example.com/a", same))
	}
	masters := csr("kubernetes.io/kube-apiserver-client", same)
	masters.Spec.Request = request(t, "root", "system:masters")
	for name, test := range map[string]struct {
		who     string
		request *kind.AdmissionRequest
		want    string
	}{
		"approver":                   {"approver", approval("example.com/a"), ""},
		"approver of another":        {"approver", approval("example.com/b"), `user not permitted to approve requests with signerName "example.com/b"`},
		"approver of a domain":       {"approver", approval("other.com/any"), ""},
		"signer approves":            {"signer", approval("example.com/a"), "not permitted to approve"},
		"signer signs":               {"signer", status(issued), ""},
		"approver signs":             {"approver", status(issued), `user not permitted to sign requests with signerName "example.com/a"`},
		"status without change":      {"approver", status(same), ""},
		"request to be all-powerful": {"ann", create("certificatesigningrequests", certificatesv1.GroupName, masters), "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"},
	} {
		_, err := admit(env, by(&user.DefaultInfo{Name: test.who}, test.request))
		t.Run(name, func(t *testing.T) { refused(t, err, test.want) })
	}
	pretender := csr("example.com/a", func(r *certificatesv1.CertificateSigningRequest) {
		r.Spec.Username, r.Spec.Groups = "root", []string{"system:masters"}
		approved(r)
	})
	if _, err := admit(env, by(&user.DefaultInfo{Name: "ann", UID: "7", Groups: []string{"dev"}}, create("certificatesigningrequests", certificatesv1.GroupName, pretender))); err != nil {
		t.Fatal(err)
	}
	if s := pretender.Spec; s.Username != "ann" || s.UID != "7" || !slices.Equal(s.Groups, []string{"dev"}) || len(pretender.Status.Conditions) != 0 {
		t.Errorf("%+v", pretender)
	}
	r := approval("example.com/a")
	if _, err := admit(env, by(&user.DefaultInfo{Name: "approver"}, r)); err != nil {
		t.Fatal(err)
	}
	if c := r.Object.(*certificatesv1.CertificateSigningRequest).Status.Conditions[0]; !c.LastTransitionTime.Time.Equal(env.Time) || !c.LastUpdateTime.Time.Equal(env.Time) {
		t.Errorf("not stamped: %+v", c)
	}
}
