package owned

import (
	"context"
	"encoding/json"
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/client"
)

// PatchStatus turns obj's status from before into after, whatever else of obj changed meanwhile: for a status that only the caller writes, and of which it has
// seen its own last write. An update would either conflict with those changes or undo them, because a status update carries metadata too.
func PatchStatus[T client.Object](ctx context.Context, api client.API[T], obj T, before, after any) (T, error) {
	body, err := statusPatch(obj.GetUID(), before, after)
	if err != nil {
		return obj, fmt.Errorf("write the status of %s: %w", obj.GetName(), err)
	}
	return api.Patch(ctx, obj.GetNamespace(), obj.GetName(), types.MergePatchType, body, "status")
}

func statusPatch(uid types.UID, before, after any) ([]byte, error) {
	from, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	to, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}
	status, err := jsonpatch.CreateMergePatch(from, to)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": json.RawMessage(status)})
}
