package simulate

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/yare-project/yare/client"
)

// measured decodes what metrics.k8s.io says of a node. It has no Go type here: who reads it reads it as it came.
func measured(body []byte) (client.Object, error) {
	u := &unstructured.Unstructured{}
	return u, json.Unmarshal(body, &u.Object)
}
