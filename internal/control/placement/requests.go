package placement

import "slices"

// requestsKept is how many request IDs are kept. Retries follow within seconds,
// and changes of the map are rare.
const requestsKept = 512

// request is an applied request.
type request struct {
	RequestID string `json:"id"`
	Version   uint64 `json:"version"` // of the map it made
}

// requests are the last applied requests, the oldest first. A repeated request is
// answered from them and not applied again. Refusals are not kept: they change
// nothing, and the version that a command was made for refuses it again.
type requests []request

func (r *requests) add(one request) {
	if one.RequestID == "" {
		return
	}
	if len(*r) == requestsKept {
		*r = slices.Delete(*r, 0, 1)
	}
	*r = append(*r, one)
}

func (r requests) find(id string) (version uint64, ok bool) {
	for _, one := range slices.Backward(r) {
		if id != "" && one.RequestID == id {
			return one.Version, true
		}
	}
	return 0, false
}
