/* SPDX-License-Identifier: Apache-2.0 */
/* What a stranger to this tree writes: includes the installed header, links the installed library.
 */
#include <stdio.h>
#include <weft/weft.h>

int main(void)
{
    printf("%s %s\n", weft_version(), weft_status_name(WEFT_ERR_PEER));
    return 0;
}
